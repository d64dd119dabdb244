"""Requires that columns of persons are encrypted since their first record, and that the keys are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.key_store_file import SETTING, make_keys
from twofold.features.persons.records.personal import computed_columns, path_of, personal_columns
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, BadSetting
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.project.settings import Settings
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets


def require_sealed(settings: Settings, topics: Iterable[Topic]) -> None:
    """Refuses columns of persons that the log or the lake has in the clear; makes the keys before the first record.

    Raises:
        BadDeclaration: records of the topic are older than its columns of persons.
        BadSetting: records are encrypted, and the store of keys or the key of keys is missing.
        BrokerUnreachable: retryable.
    """
    topics = list(topics)
    chosen = [topic for topic in topics if personal_columns(topic)]
    if not chosen and not settings.keys_file.exists():
        return
    lake = Lake(settings)
    bounds = offsets(settings, [topic.full_name for topic in chosen]) if chosen else {}
    written = {
        topic.full_name
        for topic in chosen
        if any(place.latest for place in bounds.get(topic.full_name, {}).values()) or _is_ingested(lake, topic)
    }
    if not settings.keys_file.exists():
        if written:
            raise BadSetting(
                f"{', '.join(sorted(written))}: there are records, and {settings.keys_file}, which has the keys by "
                "which they are encrypted, is missing. No new one is made.",
                hint=f"Restore it and the key of keys from their backups, or set {SETTING} to where it is.",
            )
        make_keys(settings)
    with closing(KeyStore(settings)) as store:
        for topic in topics:
            columns, known = set(personal_columns(topic)), store.sealed_columns(topic.full_name)
            fields, kept = _fields(topic), store.fields(topic.full_name)
            if topic.full_name in written:
                _require_no_plain_text(lake, topic, columns - known, is_new=not known)
                before = kept or _fields_from_before(lake, topic, known)
                _require_never_plain(topic, fields, before)
                fields = {**before, **{path: plain or before.get(path, False) for path, plain in fields.items()}}
            if topic.captures and known and not columns:
                raise _still_encrypted(topic, known)
            if columns != known or (columns and fields != kept):
                store.keep_sealed(topic.full_name, sorted(columns), fields)


def _is_ingested(lake: Lake, topic: Topic) -> bool:
    return lake.exists(topic.full_name) and any(read_ingested_offsets(lake, topic).ends.values())


def _fields(topic: Topic) -> dict[str, bool]:
    """Returns the paths of the fields that columns are made of, each with whether it is in the clear."""
    of_values = (c for c, given in topic.schema.items() if getattr(given, "source", "value") == "value")
    personal, computed = personal_columns(topic), computed_columns(topic)
    return {".".join(path_of(topic, column)): column not in personal for column in of_values if column not in computed}


def _fields_from_before(lake: Lake, topic: Topic, known: set[str]) -> dict[str, bool]:
    """Returns the fields of a topic that is older than their record, as far as its events say."""
    plain = dict.fromkeys(_held(lake, topic) - known, True)
    return {**{path: False for path, is_plain in _fields(topic).items() if not is_plain}, **plain}


def _held(lake: Lake, topic: Topic) -> set[str]:
    """Returns the columns that the events of a topic have, or have had."""
    held = lake.open(topic.full_name).schema().fields if lake.exists(topic.full_name) else []
    return {field.name for field in held}


def _require_never_plain(topic: Topic, fields: Mapping[str, bool], before: Mapping[str, bool]) -> None:
    """Refuses columns whose field, one in it or one that it is in, was declared in the clear before."""
    plain = [f"{path}." for path, is_plain in before.items() if is_plain]

    def was_plain(path: str) -> bool:
        inner = f"{path}."
        return before.get(path, any(inner.startswith(one) or one.startswith(inner) for one in plain))

    _refuse(topic, {path for path, is_plain in fields.items() if not is_plain and was_plain(path)})


def _require_no_plain_text(lake: Lake, topic: Topic, columns: set[str], *, is_new: bool) -> None:
    """Refuses columns that were declared otherwise before; a field that was not declared was encrypted, too."""
    _refuse(topic, columns if is_new else columns & _held(lake, topic))


def _refuse(topic: Topic, columns: set[str]) -> None:
    if columns:
        raise BadDeclaration(
            f"tables/{topic.domain}/{topic.name}.py: {', '.join(sorted(columns))} cannot be personal, since the log "
            f"of {topic.full_name}, its archive and its events have records with plain text.",
            hint=f"Declare a new topic with the columns of persons, {_other_way(topic)}, let tables read it, then "
            "delete the old topic, its archive and its tables.",
        )


def _other_way(topic: Topic) -> str:
    if topic.captures:
        return f"which captures {topic.captures} from a new snapshot on"
    return f"send it what the old one has (`{COMMAND} send` encrypts)"


def _still_encrypted(topic: Topic, known: set[str]) -> BadDeclaration:
    """Explains why a captured topic stays one with columns of persons: its intake may have records for it."""
    return BadDeclaration(
        f"tables/{topic.domain}/{topic.name}.py: {', '.join(sorted(known))} of {topic.full_name} were personal, and "
        "the records that wait to be encrypted would never be in it.",
        hint=f"Declare them so again, or a new topic without them, {_other_way(topic)}.",
    )
