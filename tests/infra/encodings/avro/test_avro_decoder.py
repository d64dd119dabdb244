"""Avro records: each by the schema that it was written by, exactly, or quarantined with the place."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.infra.encodings.subjects import decoded, framed, reason
from tests.tables.declared import bound_as
from twofold.infra.encodings import schema_files
from twofold.infra.encodings.avro.avro_faults import require_sound
from twofold.infra.encodings.avro.avro_schema import Node, parse_avro
from twofold.infra.encodings.record_format import Misfit
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.metadata_columns import REST
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold_archive.format.record_columns import HEADERS

COMMIT = {
    "type": "record",
    "name": "Commit",
    "fields": [
        {"name": "sha", "type": "string"},
        {"name": "size", "type": ["null", "int"], "default": None},
    ],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["push", "pull"]}},
    {"name": "ratio", "type": ["null", "double"]},
    {"name": "yes", "type": "boolean"},
    {"name": "icon", "type": {"type": "fixed", "name": "Icon", "size": 2}},
    {"name": "payload", "type": ["null", {"type": "record", "name": "Payload", "fields": [
        {"name": "commits", "type": {"type": "array", "items": COMMIT}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    ]}]},
    {"name": "labels", "type": {"type": "map", "values": "int"}},
]  # fmt: skip
PUSH = {
    "id": "ä",
    "at": datetime(2013, 1, 1, 10, tzinfo=UTC),
    "price": Decimal("123456789012345678.90"),
    "day": date(2013, 1, 1),
    "kind": "pull",
    "ratio": 0.1,
    "yes": True,
    "icon": b"\x00\xff",
    "payload": {
        "commits": [{"sha": "f00", "size": 1}, {"sha": "f01", "size": None}],
        "local": datetime(2013, 1, 1, 11, 0, 0, 7),
    },
    "labels": {"b": 2, "a": -1},
}
NO_PUSH = {**PUSH, "price": None, "ratio": None, "payload": None, "labels": {}, "yes": False, "kind": "push"}


def schema_of(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "fields": list(fields)}


EVENT = schema_of(*FIELDS)
GUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the subject `events`."""
    monkeypatch.setattr(schema_files, "FOLDER", tmp_path)
    (tmp_path / "events").mkdir()
    return tmp_path / "events"


def put(folder: Path, **by_id: Mapping[str, Any]) -> None:
    for name, schema in by_id.items():
        (folder / f"{name[1:]}.avsc").write_text(json.dumps(schema))


def topic(**changes: Any) -> Topic:
    given = {"event_time": "at", "message_key": "id", "dedup_keys": ["id"], "max_future_skew": None}
    return bound_as(Topic(**{**given, "encoding": "avro", "subject": "events", **changes}), "events")


def written(record: Mapping[str, Any], schema: Mapping[str, Any] = EVENT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), dict(record))
    return out.getvalue()


def test_every_type_is_read_exactly(schemas: Path) -> None:
    put(schemas, _1=EVENT)
    result = decoded(topic(), framed(1, written(PUSH)), framed(1, written(NO_PUSH)))
    assert result.rejected["reasons"].to_pylist() == []
    result.accepted.validate(full=True)
    first, second = result.accepted.to_pylist()
    assert {name: first[name] for name in PUSH} == {**PUSH, "labels": [("a", -1), ("b", 2)]}
    assert {name: second[name] for name in PUSH} == {**NO_PUSH, "labels": []}


def test_a_time_of_day_is_its_microseconds(schemas: Path) -> None:
    last, at_noon = {"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}
    times = schema_of(*FIELDS[:2], {"name": "last", "type": last}, {"name": "noon", "type": at_noon})
    put(schemas, _1=times)
    record = {**PUSH, "last": time(23, 59, 59, 999_000), "noon": time(12)}
    row = decoded(topic(), framed(1, written(record, times))).accepted
    assert (row["last"].to_pylist(), row["noon"].to_pylist()) == ([86_399_999_000], [43_200_000_000])


def test_the_columns_are_those_of_the_newest_schema(schemas: Path) -> None:
    put(schemas, _1=schema_of(*FIELDS[:2]), _12=EVENT)
    assert topic().schema == {
        "id": "string",
        "at": "timestamp",
        "price": "decimal(20,2)?",
        "day": "date",
        "kind": "string",
        "ratio": "double?",
        "yes": "boolean",
        "icon": "binary",
        "payload": "struct<commits: array<struct<sha: string, size: int?>>, local: timestamp_ntz>?",
        "labels": "map<string,int>",
    }


def test_older_and_newer_records_are_read_by_the_newest_file(schemas: Path) -> None:
    older = schema_of(
        FIELDS[0],
        FIELDS[1],
        {"name": "gone", "type": {"type": "array", "items": "string"}},
        {"name": "n", "type": "int"},
    )
    newer = schema_of(
        {"name": "n", "type": "long"},
        {"name": "name", "type": ["string", "null"], "aliases": ["id"]},
        FIELDS[1],
        {"name": "size", "type": "int", "default": 7},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x", "y"]},
        {"name": "who", "type": COMMIT, "default": {"sha": "0"}},
    )
    put(schemas, _3=older, _4=newer)
    named = topic(message_key="name", dedup_keys=["name"], unknown_fields="ignore")
    at = datetime(2013, 1, 1, tzinfo=UTC)
    latest = {"n": 2**40, "name": None, "at": at, "size": 1, "tags": [], "who": {"sha": "1", "size": 2}}
    result = decoded(
        named,
        framed(3, written({"id": "a", "at": at, "gone": ["1", "2"], "n": -5}, older)),
        framed(4, written(latest, newer)),
        framed(3, written({"id": "b", "at": at, "gone": [], "n": 6}, older)),
    )
    assert result.rejected["reasons"].to_pylist() == []
    rows = [{name: row[name] for name in latest} for row in result.accepted.to_pylist()]
    filled = {"at": at, "size": 7, "tags": ["x", "y"], "who": {"sha": "0", "size": None}}
    assert rows == [{"n": -5, "name": "a", **filled}, latest, {"n": 6, "name": "b", **filled}]


def test_a_whole_number_that_a_double_would_round_is_a_fault_of_its_record(schemas: Path) -> None:
    put(schemas, _1=schema_of(*FIELDS[:2], {"name": "n", "type": "long"}))
    put(schemas, _2=schema_of(*FIELDS[:2], {"name": "n", "type": ["null", "double"]}))
    older = schema_of(*FIELDS[:2], {"name": "n", "type": "long"})
    numbers = [2**53, 2**53 + 1, -(2**53) - 1, 2**53 + 2, -(2**63), 2**63 - 1, -7]
    records = [written({"id": str(n), "at": datetime(2013, 1, 1, tzinfo=UTC), "n": n}, older) for n in numbers]
    result = decoded(topic(), *(framed(1, record) for record in records))
    assert [int(n) for n in result.accepted["n"].to_pylist()] == [2**53, 2**53 + 2, -(2**63), -7]
    assert len(result.rejected) == 3
    assert "a number that a double rounds" in str(result.rejected["reasons"].to_pylist()[0])


def test_a_value_is_read_by_the_branch_that_it_was_written_by(schemas: Path) -> None:
    """Of a union of several types the newest schema reads one; another one is a fault of its record."""
    other = {"type": "record", "name": "Other", "fields": [{"name": "n", "type": "int"}]}
    many = schema_of(*FIELDS[:2], {"name": "x", "type": ["null", "string", "int", "long", other, COMMIT]})
    put(schemas, _1=many, _2=schema_of(*FIELDS[:2], {"name": "x", "type": ["null", "double"]}))
    commit = {"sha": "f00", "size": 3}
    at = datetime(2013, 1, 1, tzinfo=UTC)
    values: list[Any] = [7, None, "no", 2**40, 2**53 + 1, {"n": 1}, commit, -8]
    records = [framed(1, written({"id": str(n), "at": at, "x": x}, many)) for n, x in enumerate(values)]
    numbers = decoded(topic(), *records)
    assert numbers.accepted.select(["id", "x"]).to_pylist() == [
        {"id": "0", "x": 7.0},
        {"id": "1", "x": None},
        {"id": "3", "x": 2.0**40},
        {"id": "7", "x": -8.0},
    ]
    put(schemas, _3=schema_of(*FIELDS[:2], {"name": "x", "type": ["null", "long"]}))
    assert decoded(topic(), *records).accepted["x"].to_pylist() == [7, None, 2**40, 2**53 + 1, -8]
    put(schemas, _4=schema_of(*FIELDS[:2], {"name": "x", "type": ["null", COMMIT]}))
    rows = decoded(topic(unknown_fields="ignore"), *records)
    assert rows.accepted.select(["id", "x"]).to_pylist() == [{"id": "1", "x": None}, {"id": "6", "x": commit}]
    assert len(rows.rejected) == 6


@pytest.mark.parametrize("branches", [["long", "date"], ["date", "long"]])
def test_a_value_that_may_be_of_two_branches_is_not_guessed(schemas: Path, branches: list[str]) -> None:
    """fastavro gives a number for both; one of them the newest schema reads, the other one it refuses."""
    kinds = {"long": "long", "date": {"type": "int", "logicalType": "date"}}
    put(schemas, _1=schema_of(*FIELDS[:2], {"name": "x", "type": ["null", *(kinds[name] for name in branches)]}))
    put(schemas, _2=schema_of(*FIELDS[:2], {"name": "x", "type": ["null", "long"]}))
    start, number = written(PUSH, schema_of(*FIELDS[:2])), 1 + branches.index("long")
    large = bytes([number * 2]) + b"\x80\x80\x80\x80\x40"  # beyond 32 bits, so that it is no date
    result = decoded(topic(), *(framed(1, start + value) for value in (b"\x00", bytes([number * 2, 10]), large)))
    assert result.accepted["x"].to_pylist() == [None, 2**33]
    assert reason(result) == "a value of a union whose types cannot be distinguished"


def test_bytes_and_texts_are_read_as_each_other(schemas: Path) -> None:
    older = schema_of(*FIELDS[:2], {"name": "a", "type": "bytes"}, {"name": "b", "type": "string"})
    put(schemas, _1=older)
    put(schemas, _2=schema_of(*FIELDS[:2], {"name": "a", "type": "string"}, {"name": "b", "type": "bytes"}))
    good, bad = ({**PUSH, "a": a, "b": "ä"} for a in ("ü".encode(), b"\xff"))
    result = decoded(topic(), framed(1, written(good, older)), framed(1, written(bad, older)))
    assert result.accepted.select(["a", "b"]).to_pylist() == [{"a": "ü", "b": "ä".encode()}]
    assert reason(result) == "Expected UTF-8"


def test_an_id_that_is_unknown_is_quarantined_until_its_file_is_there(schemas: Path) -> None:
    put(schemas, _1=schema_of(*FIELDS[:2]))
    newer = schema_of(*FIELDS[:2], {"name": "n", "type": ["null", "int"], "default": None})
    value = framed(9, written({**PUSH, "n": 4}, newer))
    result = decoded(topic(), value)
    assert reason(result) == "the schema 9 is unknown: schemas/events has 1"
    assert result.rejected["value"].to_pylist() == [value]
    put(schemas, _9=newer)
    assert decoded(topic(), value).accepted["n"].to_pylist() == [4]


def test_a_new_schema_changes_what_records_become(schemas: Path) -> None:
    put(schemas, _1=EVENT)
    before = decoding(topic())
    assert decoding(topic()) == before
    put(schemas, _2=EVENT)
    assert decoding(topic()) != before


def test_the_id_may_be_a_guid_in_a_header(schemas: Path) -> None:
    put(schemas, _1=EVENT)
    (schemas / "guids.json").write_text(json.dumps({GUID: 1}))
    guid = b"\x01" + UUID(GUID).bytes
    other = b"\x01" + UUID(int=5).bytes
    headers = [
        [{"key": "trace", "value": b"x"}, {"key": "__value_schema_id", "value": guid}],
        None,
        [{"key": "__value_schema_id", "value": other}],
    ]
    record = written(PUSH)
    result = decoded(topic(), record, guid + record, record, headers=headers)
    assert result.accepted["id"].to_pylist() == ["ä", "ä"]
    assert reason(result) == f"the schema {UUID(int=5)} is unknown: schemas/events has 1"
    assert result.rejected[HEADERS].to_pylist() == [[{"key": "__value_schema_id", "value": other}]]


def test_an_empty_list_of_headers_is_none(schemas: Path) -> None:
    put(schemas, _1=EVENT)
    header = [{"key": "trace", "value": None}]
    result = decoded(topic(), framed(1, written(PUSH)), b"{}", b"{}", b"{}", headers=[[], [], header, None])
    assert result.accepted["id"].to_pylist() == ["ä"]
    assert result.rejected[HEADERS].to_pylist() == [None, header, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "no value: expected an Avro record; tombstones need a topic that is declared with compacted=True"),
        (b"", "no schema id: the value is empty, expected 0 and an id or 1 and a GUID"),
        (b"{}", "no schema id: the value begins with the byte 123, expected 0 and an id or 1 and a GUID"),
        (b"\x00\x00\x00", "no schema id: the value ends within it"),
        (framed(1, b""), "Expected `the length of string`, got the end of the record at `id`"),
        (framed(1, written(PUSH) + b"x"), "1 bytes are left behind the record"),
        (bytes(70_000), "70000 bytes: expected at most 65536"),
    ],
)
def test_a_value_that_is_no_record_is_quarantined(schemas: Path, value: bytes | None, expected: str) -> None:
    put(schemas, _1=EVENT)
    assert reason(decoded(topic(), value)) == expected


@pytest.mark.parametrize(
    ("kind", "poison", "expected"),
    [
        ("boolean", b"\x02", "Expected `boolean`, got the byte 2"),
        ("int", b"\x80\x80\x80\x80\x10", "Expected `int`, got 2147483648"),
        ("long", b"\xff" * 9 + b"\x02", "Expected long, got a number of more than 64 bits"),
        ("long", b"\xff" * 10 + b"\x01", "Expected long, got more bytes than a number has"),
        ("string", b"\x04\xff\xfe", "Expected UTF-8, got the byte 0xff"),
        ("string", b"\x04\xed\xa0", "Expected UTF-8, got the byte 0xed"),
        ("string", b"\x05", "Expected `string`, got the length -3"),
        ("bytes", b"\x06a", "Expected `bytes`, got the end of the record"),
        ("double", struct.pack("<d", float("nan")), "Expected `double`, got a number that is not finite"),
        ("float", struct.pack("<f", float("inf")), "Expected `float`, got a number that is not finite"),
        ("float", b"\x00", "Expected `float`, got the end of the record"),
        (["null", "int"], b"\x04", "Expected the number of a branch below 2, got 2"),
        ({"type": "enum", "name": "E", "symbols": ["x"]}, b"\x01", "Expected the number of a symbol below 1, got -1"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f\x02", "more items, got"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            b"\xfe" + b"\xff" * 8 + b"\x01",
            "expected a year from 1",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            b"\x04\x27\x10",
            "Expected decimal(4,2), got more digits",
        ),
    ],
)
def test_poison_is_quarantined_with_its_place(schemas: Path, kind: Any, poison: bytes, expected: str) -> None:
    """Within the second item of an array within a record; what follows keeps the value's bytes from being the last."""
    item = {"type": "record", "name": "Item", "fields": [{"name": "x", "type": kind}]}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "items", "type": {"type": "array", "items": item}}]}
    head = schema_of(*FIELDS[:2], {"name": "payload", "type": inner})
    put(schemas, _1=head)
    start = written(PUSH, schema_of(*FIELDS[:2]))
    items = b"\x01\x7f" + poison + b"\x00"  # a block of one item, in the form that has a length
    result = decoded(topic(), framed(1, start + items), framed(1, start + b"\x00"))
    found = reason(result)
    assert expected in found
    assert found.endswith("`payload.items[0].x`") or "items" in expected
    assert result.accepted["id"].to_pylist() == ["ä"]


def test_a_decimal_at_its_bounds_is_kept_and_one_beyond_is_not(schemas: Path) -> None:
    """38 digits need all 127 bits; by precision 4, 99.99 fits and 100.00 does not."""
    wide = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}}
    put(schemas, _1=schema_of(*FIELDS[:2], wide))
    start = written(PUSH, schema_of(*FIELDS[:2]))

    def price(number: int, size: int) -> bytes:
        return framed(1, start + bytes([size * 2]) + number.to_bytes(size, "big", signed=True))

    most = 10**38 - 1
    result = decoded(
        topic(), price(most, 16), price(-most, 16), price(-1, 20), price(most + 1, 16), price(1 << 130, 20)
    )
    assert result.accepted["price"].to_pylist() == [Decimal(most), Decimal(-most), Decimal(-1)]
    assert len(result.rejected) == 2


def test_fields_that_no_column_names_are_refused_ignored_or_kept(schemas: Path) -> None:
    more = schema_of(
        *FIELDS[:2],
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "commits", "type": {"type": "array", "items": COMMIT}},
    )
    put(schemas, _1=more)
    record = {**PUSH, "price": Decimal("1.50"), "commits": [{"sha": "f00", "size": 1}, {"sha": "f01", "size": 2}]}
    value = framed(1, written(record, more))
    some = {"id": "string", "at": "timestamp", "commits": "array<struct<sha: string>>"}
    assert reason(decoded(topic(schema=some), value)) == "Object contains unknown field `price`, by the schema 1"
    assert REST not in decoded(topic(schema=some, unknown_fields="ignore"), value).accepted.column_names
    kept = decoded(topic(schema=some, unknown_fields="keep"), value).accepted
    assert kept["commits"].to_pylist() == [[{"sha": "f00"}, {"sha": "f01"}]]
    assert kept[REST].to_pylist() == ['{"price":1.50,"commits":{"0":{"size":1},"1":{"size":2}}}']


def test_a_damaged_record_is_accepted_only_where_every_byte_fits(schemas: Path) -> None:
    """2,000 records with a byte changed: accepted are those that the strict reader finds sound, and their values."""
    put(schemas, _1=EVENT)
    chance, node = random.Random(1), parse_avro(schema_files.Schema(json.dumps(EVENT))).root
    records = []
    for _ in range(2_000):
        record = bytearray(written(chance.choice([PUSH, NO_PUSH])))
        record[chance.randrange(len(record))] = chance.randrange(256)
        records.append(bytes(record))
    result = decoded(topic(), *(framed(1, record) for record in records))
    accepted = {row["_offset"] - 100 for row in result.accepted.to_pylist()}
    assert accepted == {n for n, record in enumerate(records) if is_sound(node, record)}
    assert 100 < len(accepted) < 1_900


def is_sound(node: Node, record: bytes) -> bool:
    try:
        require_sound(node, record, 0)
    except Misfit:
        return False
    return True


def test_a_key_that_is_in_a_map_twice_is_found(schemas: Path) -> None:
    put(schemas, _1=schema_of(*FIELDS[:2], {"name": "labels", "type": {"type": "map", "values": "int"}}))
    start = written(PUSH, schema_of(*FIELDS[:2]))
    entry = b"\x02a\x02"
    result = decoded(
        topic(), framed(1, start + b"\x04" + entry * 2 + b"\x00"), framed(1, start + b"\x02" + entry + b"\x00")
    )
    assert reason(result) == "the key 'a' is repeated at `labels`"
    assert result.accepted["labels"].to_pylist() == [[("a", 1)]]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('{"type": "string"}', "the Avro schema of a string: expected a record's"),
        ('{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}', "the record R contains"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": {"type": "array", "items": "null"}}]}',
            "an array of items without a byte",
        ),
        ("{", "no Avro schema"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "at", "type": "acme.Place"}]}',
            "it uses the type acme.Place, which it does not define",
        ),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_its_file(schemas: Path, schema: str, expected: str) -> None:
    (schemas / "1.avsc").write_text(schema)
    with pytest.raises(BadDeclaration, match=f"schemas/events/1: .*{expected}"):
        topic()


def test_a_column_that_the_schema_has_otherwise_is_refused(schemas: Path) -> None:
    put(schemas, _1=EVENT)
    with pytest.raises(BadDeclaration, match="kind is declared 'int'; schemas/events/1 has 'string'"):
        topic(schema={"id": "string", "at": "timestamp", "kind": "int"})
    with pytest.raises(BadDeclaration, match="has no field sort"):
        topic(schema={"id": "string", "at": "timestamp", "sort": "int"})
    with pytest.raises(BadDeclaration, match="schemas/nothing has no schema"):
        topic(subject="nothing")


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.text(max_size=5),
                "at": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
                    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
                ),
                "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "price": st.none() | st.decimals(-(10**17), 10**17, places=2),
                "payload": st.none()
                | st.fixed_dictionaries(
                    {
                        "commits": st.lists(
                            st.fixed_dictionaries({"sha": st.text(max_size=3), "size": st.none() | st.integers(-9, 9)}),
                            max_size=3,
                        ),
                        "local": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
                    }
                ),
                "labels": st.dictionaries(st.text(max_size=2), st.integers(-(2**31), 2**31 - 1), max_size=3),
            }
        ),
        max_size=4,
    )
)
def test_what_fastavro_writes_is_read_as_it_was(records: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        files = schema_files.SchemaFiles(subject="events", by_id={1: schema_files.Schema(json.dumps(EVENT))})
        patch.setattr("twofold.tables.declare.topic.read_schemas", lambda *_: files)
        whole = [{**PUSH, **record} for record in records]
        result = decoded(topic(), *(framed(1, written(record)) for record in whole))
    found = [{name: row[name] for name in PUSH} for row in result.accepted.to_pylist()]
    assert found == [{**record, "labels": sorted(record["labels"].items())} for record in whole]
