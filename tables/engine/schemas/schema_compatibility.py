"""Holds the schemas of a subject against its newest one, by which all records are read."""

from __future__ import annotations

from collections.abc import Iterator

from infra.errors import BadDeclaration
from tables.declare.topic import Topic
from tables.engine.schemas.avro_resolution import resolved, unreadable
from tables.engine.schemas.avro_schema import BadSchema, parse_avro
from tables.engine.schemas.schema_files import SUFFIXES, Schema


def incompatible_changes(topic: Topic) -> list[BadDeclaration]:
    """What records of each older schema have that the newest one cannot read; one fault for each such schema."""
    if topic.encoding not in SUFFIXES:
        return []
    files = topic.schema_files
    *older, newest = files.by_id
    found = []
    for id_ in older:
        reasons = list(_REASONS[topic.encoding](files.by_id[id_], files.newest))
        if reasons:
            found.append(
                BadDeclaration(
                    f"schemas/{files.subject}/{newest} cannot read what was written by {id_}: {'; '.join(reasons)}.",
                    hint="Give a new field a default, and keep the type of one that there is.",
                )
            )
    return found


def _of_avro(writer: Schema, reader: Schema) -> Iterator[str]:
    try:
        yield from unreadable(resolved(parse_avro(writer).root, parse_avro(reader).root))
    except BadSchema as error:
        yield str(error)


def _of_protobuf(writer: Schema, reader: Schema) -> Iterator[str]:
    from tables.engine.schemas.protobuf_schema import differences, message_of

    try:
        yield from differences(message_of(writer), message_of(reader))
    except BadSchema as error:
        yield str(error)


_REASONS = {"avro": _of_avro, "protobuf": _of_protobuf}
