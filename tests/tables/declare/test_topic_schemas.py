"""A newest schema that cannot read what older ones wrote is refused, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twofold.infra.encodings import schema_files
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.topic import Topic
from twofold.tables.declare.topic_schemas import incompatible_changes

ID = {"name": "id", "type": "string"}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}


def faults(folder: Path, patch: pytest.MonkeyPatch, older: list[Any], newer: list[Any]) -> list[str]:
    """What is wrong with a change of the fields beside `id` and `at`."""
    patch.setattr(schema_files, "FOLDER", folder)
    (folder / "events").mkdir()
    for id_, fields in {3: older, 11: newer}.items():
        schema = {"type": "record", "name": "Event", "fields": [ID, AT, *fields]}
        (folder / "events" / f"{id_}.avsc").write_text(json.dumps(schema))
    topic = Topic(
        schema={"id": "string", "at": "timestamp"},
        encoding="avro",
        subject="events",
        event_time="at",
        message_key="id",
        dedup_keys=["id"],
    )
    return [fault.message for fault in incompatible_changes(topic.schema_files, find_encoding("avro"))]


def one_field(kind: Any, **more: Any) -> list[Any]:
    return [{"name": "x", "type": kind, **more}]


KIND = {"type": "enum", "name": "Kind"}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (one_field("int"), one_field("long")),
        (one_field("int"), []),
        ([], one_field(["null", "int"], default=None)),
        (one_field("int"), one_field(["null", "int"])),
        (one_field({**KIND, "symbols": ["a"]}), one_field({**KIND, "symbols": ["b", "a"]})),
        (one_field({**KIND, "symbols": ["a", "b"]}), one_field({**KIND, "symbols": ["a"], "default": "a"})),
        (one_field("string"), [{"name": "y", "type": "string", "aliases": ["x"]}]),
    ],
)
def test_a_compatible_change_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: list[Any], newer: list[Any]
) -> None:
    assert faults(tmp_path, monkeypatch, older, newer) == []


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (one_field("long"), one_field("int"), "`x` was written as long and is read as int"),
        ([], one_field("int"), "the field `x` was not written and has no default"),
        (one_field(["null", "int"]), one_field("int"), "`x` was written as null, which is not read"),
        (
            one_field({**KIND, "symbols": ["a", "b"]}),
            one_field({**KIND, "symbols": ["a"]}),
            "`x` was written with the symbol b, which is not read",
        ),
        (
            one_field({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            one_field({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
            "`x` was written as decimal(9,2) and is read as decimal(4,2)",
        ),
        (
            one_field({"type": "array", "items": {"type": "record", "name": "R", "fields": one_field("string")}}),
            one_field({"type": "array", "items": {"type": "record", "name": "R", "fields": one_field("boolean")}}),
            "`x[].x` was written as string and is read as boolean",
        ),
    ],
)
def test_an_incompatible_change_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: list[Any], newer: list[Any], expected: str
) -> None:
    [fault] = faults(tmp_path, monkeypatch, older, newer)
    assert fault == f"schemas/events/11 cannot read what was written by 3: {expected}."
