"""Protobuf records: each by the schema that it was written by, exactly, or quarantined with the place."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.infra.encodings.subjects import decoded, framed, reason, write_schemas
from tests.tables.declared import bound_as
from twofold.infra.encodings import schema_files
from twofold.infra.encodings.protobuf.protobuf_schema import message_of
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.encodings import find_encoding
from twofold.tables.declare.metadata_columns import REST
from twofold.tables.declare.topic import Topic
from twofold.tables.declare.topic_schemas import incompatible_changes

pytest.importorskip("grpc_tools")

HEAD = 'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\nimport "google/protobuf/wrappers.proto";\n'
FIRST = "string id = 1; google.protobuf.Timestamp at = 2;"
EVENT = f"""{HEAD}message Event {{ {FIRST}
  optional int32 small = 3; uint64 big = 4; double ratio = 5; bool yes = 6; bytes icon = 7;
  enum Kind {{ PUSH = 0; PULL = 1; }}
  Kind kind = 8;
  message Commit {{ string sha = 1; optional sint32 size = 2; repeated float parts = 3; }}
  message Payload {{ repeated Commit commits = 1; google.protobuf.StringValue ref = 2; }}
  Payload payload = 9;
  map<string, int64> labels = 10;
  oneof what {{ string text = 11; int64 number = 12; }}
}}"""
AT = datetime(2013, 1, 1, 10, 0, 0, 5, tzinfo=UTC)
FIRST_MESSAGE = b"\x00"  # the numbers of the message: none, which stands for the first


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path)
    return tmp_path


def topic(**changes: Any) -> Topic:
    given = {"event_time": "at", "message_key": "id", "dedup_keys": ["id"], "max_future_skew": None}
    return bound_as(Topic(**{**given, "encoding": "protobuf", "subject": "events", **changes}), "events")


def with_fields(fields: str, name: str = "Event") -> str:
    return f"{HEAD}message {name} {{ {FIRST} {fields} }}"


def written(schema: str, **fields: Any) -> bytes:
    """A message of the first of the schema, by the runtime of Protobuf."""
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(message_of(schema_files.Schema(schema)))()
    found = ParseDict({"id": "a", "at": "2013-01-01T10:00:00.000005Z", **fields}, message)
    return bytes(found.SerializeToString())


def test_every_type_is_read_exactly(folder: Path) -> None:
    write_schemas(folder, "events", ".proto", {1: EVENT})
    commits = [{"sha": "f00", "size": -1, "parts": [0.5, -1]}, {"sha": "f01"}]
    fields = {"small": -5, "big": str(2**64 - 1), "ratio": 0.1, "yes": True, "icon": "AP8=", "kind": "PULL"}
    more = {"payload": {"commits": commits, "ref": "main"}, "labels": {"b": "2", "a": "-1"}, "number": "7"}
    full = framed(1, written(EVENT, **fields, **more), FIRST_MESSAGE)
    result = decoded(topic(), full, framed(1, written(EVENT), b"\x02\x00"))
    assert result.rejected["reasons"].to_pylist() == []
    first, second = result.accepted.to_pylist()
    names = topic().types
    assert {name: first[name] for name in names} == {
        "id": "a",
        "at": AT,
        "small": -5,
        "big": Decimal(2**64 - 1),
        "ratio": 0.1,
        "yes": True,
        "icon": b"\x00\xff",
        "kind": "PULL",
        "payload": {
            "commits": [{"sha": "f00", "size": -1, "parts": [0.5, -1]}, {"sha": "f01", "size": None, "parts": []}],
            "ref": "main",
        },
        "labels": [("a", -1), ("b", 2)],
        "text": None,
        "number": 7,
    }
    nothing = {"small": None, "big": 0, "ratio": 0, "yes": False, "icon": b"", "kind": "PUSH", "payload": None}
    assert {name: second[name] for name in names} == {
        "id": "a",
        "at": AT,
        **nothing,
        "labels": [],
        "text": None,
        "number": None,
    }


def pieces(chance: random.Random) -> bytes:
    """A message in up to three pieces, as the format allows: of repeated fields all count, of others the last."""
    made = []
    for _ in range(chance.randint(1, 3)):
        fields: dict[str, Any] = {
            "small": chance.randint(-(2**31), 2**31 - 1),
            "big": str(chance.getrandbits(64)),
            "ratio": chance.uniform(-1, 1),
            "yes": chance.random() < 0.5,
            "icon": base64.b64encode(chance.randbytes(chance.randint(0, 3))).decode(),
            "kind": chance.choice(["PUSH", "PULL"]),
            "payload": {
                "commits": [
                    {"sha": "ü" * chance.randint(0, 2), "size": -n, "parts": [chance.uniform(-1, 1)] * n}
                    for n in range(chance.randint(0, 3))
                ],
                "ref": chance.choice(["", "main"]),
            },
            "labels": {name: str(chance.randint(-9, 9)) for name in "cab"[: chance.randint(0, 3)]},
            chance.choice(["text", "number"]): "7",
        }
        kept = {name: value for name, value in fields.items() if chance.random() < 0.7}
        made.append(written(EVENT, **kept))
    return b"".join(made)


def by_runtime(record: bytes) -> dict[str, Any] | None:
    """What Protobuf's own runtime reads; None where it reads no such record."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        m = GetMessageClass(message_of(schema_files.Schema(EVENT)))().FromString(record)
    except DecodeError:
        return None
    commits = [
        {"sha": c.sha, "size": c.size if c.HasField("size") else None, "parts": list(c.parts)}
        for c in m.payload.commits
    ]
    ref = m.payload.ref.value if m.payload.HasField("ref") else None
    return {
        "id": m.id,
        "small": m.small if m.HasField("small") else None,
        "big": Decimal(m.big),
        "ratio": m.ratio,
        "yes": m.yes,
        "icon": m.icon,
        "kind": {0: "PUSH", 1: "PULL"}.get(m.kind),
        "payload": {"commits": commits, "ref": ref} if m.HasField("payload") else None,
        "labels": sorted(m.labels.items()),
        "text": m.text if m.HasField("text") else None,
        "number": m.number if m.HasField("number") else None,
    }


@pytest.mark.parametrize("damage", [0.0, 0.5])
def test_every_record_is_what_the_runtime_of_protobuf_reads(folder: Path, damage: float) -> None:
    """Records in pieces, and some with a byte changed: what is accepted has the runtime's values."""
    write_schemas(folder, "events", ".proto", {1: EVENT})
    chance = random.Random(1)
    records = [pieces(chance) for _ in range(2_000)]
    for n, record in enumerate(records):
        if chance.random() < damage:
            at = chance.randrange(len(record))
            records[n] = record[:at] + bytes([chance.randrange(256)]) + record[at + 1 :]
    result = decoded(topic(), *(framed(1, record, FIRST_MESSAGE) for record in records))
    accepted = {row["_offset"] - 100: row for row in result.accepted.to_pylist()}
    assert len(accepted) == len(records) if not damage else 500 < len(accepted) < len(records)
    for n, row in accepted.items():
        expected = by_runtime(records[n])
        assert expected is not None
        assert {name: row[name] for name in expected} == expected


def test_of_two_members_of_a_oneof_the_later_counts(folder: Path) -> None:
    schema = with_fields("message Part { string sha = 1; } oneof what { string text = 3; Part part = 4; }")
    write_schemas(folder, "events", ".proto", {1: schema})
    one, other = written(schema, part={"sha": "f00"}), b"\x1a\x01x"
    rows = decoded(topic(), framed(1, one, b"\x00"), framed(1, one + other, b"\x00")).accepted
    assert rows["part"].to_pylist() == [{"sha": "f00"}, None]
    assert rows["text"].to_pylist() == [None, "x"]


def test_a_symbol_that_a_closed_enum_has_not_is_a_fault(folder: Path) -> None:
    head = HEAD.replace("proto3", "proto2")
    fields = "required string id = 1; required google.protobuf.Timestamp at = 2; optional Kind kind = 3;"
    schema = f"{head}enum Kind {{ PUSH = 1; }} message Event {{ {fields} }}"
    write_schemas(folder, "events", ".proto", {1: schema})
    result = decoded(topic(), framed(1, written(schema), b"\x00"), framed(1, written(schema) + b"\x18\x02", b"\x00"))
    assert reason(result) == "Expected a symbol of Kind, got the number 2 at `kind`"
    assert result.accepted["kind"].to_pylist() == [None]


def test_texts_and_required_fields_of_proto2_are_held(folder: Path) -> None:
    head = HEAD.replace("proto3", "proto2")
    fields = "required string id = 1; required google.protobuf.Timestamp at = 2; optional string name = 3;"
    write_schemas(folder, "events", ".proto", {1: f"{head}message Event {{ {fields} }}"})
    full = written(EVENT)
    assert decoded(topic(), framed(1, full + b"\x1a\x01x", b"\x00")).accepted["name"].to_pylist() == ["x"]
    bad_text = decoded(topic(), framed(1, full + b"\x1a\x02\xff\xfe", b"\x00"))
    assert reason(bad_text) == "Expected UTF-8, got the byte 0xff at `name`"
    no_id = decoded(topic(), framed(1, full[3:], b"\x00"))
    assert reason(no_id) == "Object is missing the required field at `id`"


def test_texts_of_an_imported_file_of_proto2_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = 'syntax = "proto2"; message Part { optional string sha = 1; }'
    importing = HEAD + f'import "part.proto"; message Event {{ {FIRST} Part part = 3; }}'
    schema = schema_files.Schema(importing, (("part.proto", imported),))
    files = schema_files.SchemaFiles(subject="events", by_id={1: schema})
    monkeypatch.setattr("twofold.tables.declare.topic.read_schemas", lambda *_: files)
    start = written(EVENT)
    result = decoded(
        topic(), *(framed(1, start + part, FIRST_MESSAGE) for part in (b"\x1a\x03\x0a\x01x", b"\x1a\x03\x0a\x01\xff"))
    )
    assert result.accepted["part"].to_pylist() == [{"sha": "x"}]
    assert reason(result) == "Expected UTF-8, got the byte 0xff at `part.sha`"


def test_older_and_newer_records_are_read_by_the_newest_file(folder: Path) -> None:
    older = with_fields("int32 n = 3; string gone = 4;")
    newer = with_fields("int64 count = 3; optional string name = 5;")
    write_schemas(folder, "events", ".proto", {3: older, 12: newer})
    values = [
        framed(3, written(older, n=5, gone="x"), b"\x00"),
        framed(12, written(newer, count="6", name="y"), b"\x00"),
    ]
    assert reason(decoded(topic(), values[0])) == "Object contains unknown field `gone`, by the schema 3"
    rows = decoded(topic(unknown_fields="ignore"), *values).accepted.to_pylist()
    assert [(row["count"], row["name"]) for row in rows] == [(5, None), (6, "y")]
    kept = decoded(topic(unknown_fields="keep"), *values).accepted
    assert kept[REST].to_pylist() == ['{"gone":"x"}', None]


def test_the_message_is_the_one_of_the_newest_schema(folder: Path) -> None:
    two = EVENT + "\nmessage Other { string id = 1; }"
    write_schemas(folder, "events", ".proto", {1: two})
    assert reason(decoded(topic(), framed(1, b"", b"\x02\x02"))) == (
        "Expected the message Event, got Other of the schema 1"
    )
    assert reason(decoded(topic(), framed(1, b"", b"\x02\x0a"))) == "the schema 1 cannot be read: it has no message [5]"
    assert reason(decoded(topic(), framed(9, b"", b"\x00"))) == "the schema 9 is unknown: schemas/events has 1"
    assert "ends within the numbers of its message" in reason(decoded(topic(), framed(1, b"", b"\x04")))


COMMIT = b"\x4a\x06\x0a\x04"  # payload with one commit of 4 bytes


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (COMMIT + b"\x0a\x02\xff\xfe", "Expected UTF-8, got the byte 0xff at `payload.commits[0].sha`"),
        (COMMIT + b"\x0a\x09ab", "Expected 9 bytes, got the end of the record at `payload.commits[0].sha`"),
        (COMMIT + b"\x08\x01\x10\x02", "Expected the wire type 2, got 0 at `payload.commits[0].sha`"),
        (COMMIT + b"\x7a\x02\x10\x02", "the field 15 is none of Commit at `payload.commits[0]`"),
        (
            b"\x4a\x08\x0a\x06\x1a\x04\x00\x00\x80\x7f",
            "got a number that is not finite at `payload.commits[0].parts[0]`",
        ),
        (b"\x40\x07", "Expected a symbol of Kind, got the number 7 at `kind`"),
        (b"\x29\x00\x00\x00", "Expected 8 bytes, got the end of the record at `ratio`"),
        (b"\x18" + b"\xff" * 11, "got more bytes than a number has at `small`"),
        (b"\x12\x07\x08\xff\xff\xff\xff\xff\x7f", "expected a year from 1 to 9999 in UTC at `at`"),
        (b"\x12\x02\x10\x07", "Expected whole microseconds, got 7 nanoseconds at `at`"),
    ],
)
def test_poison_is_quarantined_with_its_place(folder: Path, more: bytes, expected: str) -> None:
    write_schemas(folder, "events", ".proto", {1: EVENT})
    start = written(EVENT) if not more.startswith(b"\x12") else written(EVENT, at=None)
    result = decoded(topic(), framed(1, start + more, b"\x00"), framed(1, written(EVENT), b"\x00"))
    assert reason(result).endswith(expected)
    assert len(result.accepted) == 1


def test_a_record_without_its_event_time_is_quarantined(folder: Path) -> None:
    write_schemas(folder, "events", ".proto", {1: EVENT})
    assert reason(decoded(topic(), framed(1, b"\x0a\x01a", b"\x00"))) == "Object is missing the required field at `at`"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("message {", "no Protobuf schema: schema.proto:1:9"),
        (HEAD + "message R { R r = 1; }", "the message R contains itself"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_its_file(folder: Path, schema: str, expected: str) -> None:
    write_schemas(folder, "events", ".proto", {1: schema})
    with pytest.raises(BadDeclaration, match=f"schemas/events/1: .*{expected}"):
        topic()


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ("int32 n = 3;", "int64 m = 3; string new = 4;", []),
        ("int64 n = 3;", "int32 n = 3;", ["`n` was written as int64 and is read as int32"]),
        ("int32 n = 3;", "sint32 n = 3;", ["`n` was written as int32 and is read as sint32"]),
        ("string n = 3;", "repeated string n = 3;", ["`n` was written as string and is read as repeated string"]),
    ],
)
def test_an_incompatible_change_is_refused(folder: Path, older: str, newer: str, expected: list[str]) -> None:
    write_schemas(folder, "events", ".proto", {1: with_fields(older), 2: with_fields(newer)})
    start = "schemas/events/2 cannot read what was written by 1: "
    found = incompatible_changes(topic().schema_files, find_encoding("protobuf"))
    assert [f.message for f in found] == [f"{start}{text}." for text in expected]
