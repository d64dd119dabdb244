"""Holds the schemas of a subject against its newest one, by which all records are read."""

from __future__ import annotations

from infra.errors import BadDeclaration
from tables.declare.encodings import find_encoding
from tables.declare.topic import Topic
from tables.engine.schemas.record_format import BadSchema


def incompatible_changes(topic: Topic) -> list[BadDeclaration]:
    """What records of each older schema have that the newest one cannot read; one fault for each such schema."""
    if not topic.has_schema_files:
        return []
    encoding, files = find_encoding(topic.encoding), topic.schema_files
    *older, newest = files.by_id
    found = []
    for id_ in older:
        try:
            reasons = list(encoding.unreadable(files.by_id[id_], files.newest))
        except BadSchema as error:
            reasons = [str(error)]
        if reasons:
            found.append(
                BadDeclaration(
                    f"schemas/{files.subject}/{newest} cannot read what was written by {id_}: {'; '.join(reasons)}.",
                    hint="Give a new field a default, and keep the type of one that there is.",
                )
            )
    return found
