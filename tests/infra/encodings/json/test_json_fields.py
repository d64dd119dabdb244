"""Records with structure: every depth keeps its values exactly, or the record is quarantined with the place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.declared import a_topic
from tests.tables.typed_records import raw
from twofold.infra.encodings.column_types import parse_type
from twofold.infra.errors import BadDeclaration
from twofold.tables.declare.metadata_columns import REST
from twofold.tables.refresh.events.record_decoder import Decoded, Decoder

SCHEMA = {
    "id": "string",
    "at": "timestamp",
    "payload": "struct<push_id: long, ref: string?, commits: array<struct<sha: string, at: timestamp?, size: int?>>>?",
    "labels": "map<string,int>?",
    "price": "decimal(6,2)?",
    "icon": "binary?",
    "local": "timestamp_ntz?",
    "extra": "json?",
    "prices": "array<decimal(3,1)>?",
}
RECORD: dict[str, Any] = {"id": "a", "at": "2013-01-01T10:00:00Z"}
PUSH = {"push_id": 7, "commits": [{"sha": "f00", "size": 1}, {"sha": "f01", "at": "2013-01-01T12:00:00+02:00"}]}


def decoded(value: bytes | str, unknown_fields: str = "refuse") -> Decoded:
    topic = a_topic(
        schema=SCHEMA,
        event_time="at",
        message_key="id",
        dedup_keys=["id"],
        max_future_skew=None,
        unknown_fields=unknown_fields,
    )
    return Decoder(topic).decode(raw([value if isinstance(value, bytes) else value.encode()]), None)


def record(**fields: Any) -> str:
    return json.dumps({**RECORD, **fields}, separators=(",", ":"))


def with_text(field: str, text: str) -> str:
    """A record with a field as this JSON text."""
    return f'{{"id":"a","at":"2013-01-01T10:00:00Z","{field}":{text}}}'


def accepted(value: bytes | str, column: str, unknown_fields: str = "refuse") -> Any:
    result = decoded(value, unknown_fields)
    assert result.rejected["reasons"].to_pylist() == []
    return result.accepted[column].to_pylist()[0]


def reason(value: bytes | str, unknown_fields: str = "refuse") -> str:
    result = decoded(value, unknown_fields)
    assert len(result.accepted) == 0
    [[found]] = result.rejected["reasons"].to_pylist()
    return str(found)


def test_a_struct_keeps_its_values_at_every_depth() -> None:
    assert accepted(record(payload=PUSH), "payload") == {
        "push_id": 7,
        "ref": None,
        "commits": [
            {"sha": "f00", "at": None, "size": 1},
            {"sha": "f01", "at": datetime(2013, 1, 1, 10, tzinfo=UTC), "size": None},
        ],
    }


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("payload", "null", None),
        ("labels", '{"b":2,"a":1}', [("a", 1), ("b", 2)]),
        ("labels", "{}", []),
        ("price", "1.10", Decimal("1.10")),
        ("price", '"-9999.99"', Decimal("-9999.99")),
        ("price", "1.1000", Decimal("1.10")),
        ("price", "1e3", Decimal("1000.00")),
        ("price", "0.000", Decimal("0.00")),
        ("prices", "[0.1,99.9]", [Decimal("0.1"), Decimal("99.9")]),
        ("icon", '"AAH/"', b"\x00\x01\xff"),
        ("local", '"2013-01-01T10:00:00.5"', datetime(2013, 1, 1, 10, 0, 0, 500_000)),
        ("extra", '{"b" : 1.10, "a": [12345678901234567890123]}', '{"b" : 1.10, "a": [12345678901234567890123]}'),
        ("extra", '"text"', '"text"'),
        ("extra", "null", None),
    ],
)
def test_a_type_keeps_its_value(column: str, text: str, value: object) -> None:
    assert accepted(with_text(column, text), column) == value


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("payload", '{"push_id":1,"commits":[{"sha":"a"},{"sha":3}]}', "got `int` at `payload.commits[1].sha`"),
        ("payload", '{"push_id":1,"commits":[{}]}', "missing required field `sha` at `payload.commits[0]`"),
        ("payload", '{"push_id":1}', "missing required field `commits` at `payload`"),
        ("payload", '{"push_id":1,"commits":[],"x":1}', "unknown field `payload.x`"),
        ("payload", '{"push_id":1,"commits":[{"sha":"a","x":1}]}', "unknown field `payload.commits[0].x`"),
        (
            "payload",
            '{"push_id":1,"commits":[{"sha":"a","at":"0001-01-01T00:00:00+01:00"}]}',
            "expected a year from 1 to 9999 in UTC at `payload.commits[0].at`",
        ),
        ("payload", '{"push_id":1,"push_id":2,"commits":[]}', "the key 'push_id' is repeated"),
        ("payload", '{"push_id":1,"push_id" :2,"commits":[]}', "the key 'push_id' is repeated"),
        ("payload", '{"push_id":1,"push_id":2,"ref":"\\u0022:","commits":[]}', "the key 'push_id' is repeated"),
        ("payload", '{"push_id":1,"push_id":2,"ref":"\\"\\u003a","commits":[]}', "the key 'push_id' is repeated"),
        ("payload", '{"push_id":1,"push_id":2,"ref":"\\"\\u003A","commits":[]}', "the key 'push_id' is repeated"),
        ("labels", '{"a":1,"a":2}', "the key 'a' is repeated"),
        ("labels", '{"a":"1"}', "Expected `int`, got `str`"),
        ("price", "1.001", "Expected decimal(6,2), got 1.001 at `price`"),
        ("price", "10000", "Expected decimal(6,2), got 10000 at `price`"),
        ("price", '"NaN"', "Expected decimal(6,2), got NaN at `price`"),
        ("prices", "[1,100]", "Expected decimal(3,1), got 100 at `prices[1]`"),
        ("icon", '"?"', "base64"),
        ("local", '"2013-01-01T10:00:00Z"', "timezone"),
        ("extra", '{"a":1,}', "malformed"),
        ("extra", '{"a":1,"a":2}', "the key 'a' is repeated"),
    ],
)
def test_what_does_not_fit_is_quarantined_with_its_place(column: str, text: str, expected: str) -> None:
    assert expected in reason(with_text(column, text))


def test_invalid_text_within_json_is_quarantined() -> None:
    assert "utf-8" in reason(with_text("extra", '{"a":"?"}').encode().replace(b"?", b"\xff"))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_is_nested_without_end_is_quarantined(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    result = decoded(with_text("extra", opening * 5_000 + "1" + closing * 5_000))
    assert (len(result.accepted), len(result.rejected)) == (0, 1)


def test_unknown_fields_are_ignored_where_the_topic_says_so() -> None:
    whole = record(payload={**PUSH, "x": 1}, y=[2])
    assert accepted(whole, "payload", "ignore") == accepted(record(payload=PUSH), "payload")
    assert REST not in decoded(whole, "ignore").accepted.column_names


def test_unknown_fields_are_kept_exactly_under_the_names_that_lead_to_them() -> None:
    text = (
        '{"id":"a","at":"2013-01-01T10:00:00Z","y":[1.10, {"z":12345678901234567890123}],'
        '"payload":{"push_id":7,"commits":[{"sha":"f00"},{"sha":"f01","url":"u"}],"x":{"id":1}}}'
    )
    kept = accepted(text, REST, "keep")
    assert kept == '{"y":[1.10, {"z":12345678901234567890123}],"payload":{"commits":{"1":{"url":"u"}},"x":{"id":1}}}'
    assert accepted(record(payload=PUSH), REST, "keep") is None


def test_a_repeated_key_is_found_among_unknown_fields_too() -> None:
    assert reason(with_text("y", '{"b":1,"b":2}'), "keep") == "the key 'b' is repeated"
    assert reason(with_text("y", '{"b":1,"b":2}'), "ignore") == "the key 'b' is repeated"


def test_records_of_one_batch_keep_their_own_rest() -> None:
    topic = a_topic(schema={"sensor": "string", "read_at": "timestamp"}, unknown_fields="keep")
    good = '{{"sensor":"{}","read_at":"2013-01-01T10:00:00Z"{}}}'
    values = [good.format("a", ""), "{", good.format("b", ',"n":1'), good.format("c", ""), good.format("d", ',"n":2')]
    result = Decoder(topic).decode(raw([v.encode() for v in values]), None)
    assert result.accepted.select(["sensor", REST]).to_pylist() == [
        {"sensor": "a", REST: None},
        {"sensor": "b", REST: '{"n":1}'},
        {"sensor": "c", REST: None},
        {"sensor": "d", REST: '{"n":2}'},
    ]


def test_types_of_types_are_those_that_delta_keeps() -> None:
    assert parse_type("c", "decimal(10,2)").arrow == pa.decimal128(10, 2)
    assert parse_type("c", "timestamp_ntz").arrow == pa.timestamp("us")
    assert parse_type("c", "map<string,date?>").arrow == pa.map_(pa.string(), pa.date32())
    inner = pa.struct([pa.field("n", pa.int64()), pa.field("days", pa.list_(pa.field("element", pa.date32())))])
    found = parse_type("c", "array< struct<n:long, days: array<date?>?> >?").arrow
    assert found == pa.list_(pa.field("element", inner, nullable=False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("struct<a: strin>", "expected one of string"),
        ("struct<a: int, A: long>", "another field in the place of 'A'"),
        ("struct<a int>", "expected ':' in the place of 'int'"),
        ("struct<>", "another field in the place of '>'"),
        ("array<int", "expected '>' at its end"),
        ("array<int>>", "expected nothing after 'array<int>'"),
        ("map<int,string>", "expected 'string' in the place of 'int'"),
        ("array<map<string,int>>", "expected a map as a column of its own"),
        ("decimal(39,2)", "expected a decimal of 1 to 38 digits"),
        ("decimal(2,3)", "no more of them behind the point"),
        ("decimal(a,3)", "expected a number in the place of 'a'"),
        ("int;", "expected one of string"),
        ("", "expected a type at its end"),
    ],
)
def test_a_type_that_cannot_be_read_is_refused_where_it_ends_to_make_sense(text: str, expected: str) -> None:
    with pytest.raises(BadDeclaration) as error:
        parse_type("column", text)
    assert expected in error.value.message
    assert error.value.message.startswith(f"column has the type {text!r}")


@pytest.mark.parametrize("text", ["struct<a: int>", "array<string>", "json", "map<string,int>"])
def test_what_identifies_a_record_is_one_value(text: str) -> None:
    with pytest.raises(BadDeclaration, match="dedup_keys names value"):
        a_topic(schema={"sensor": "string", "read_at": "timestamp", "value": text}, dedup_keys=["value"])


WHOLE = record(payload=PUSH, labels={"a": 1}, price="1.10", extra={"b": [1]}, more={"c": 1}).encode()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good record with a few bytes changed, removed, put in or repeated."""
    value = bytearray(WHOLE)
    for _ in range(draw(st.integers(0, 3))):
        start, length = draw(st.integers(0, len(value))), draw(st.integers(0, 12))
        piece = bytes(value[start : start + length]) * draw(st.integers(0, 2))
        value[start : start + length] = draw(st.just(piece) | st.sampled_from([b'"', b":", b"\\u0022", b'"x":1,']))
    return bytes(value)


@given(mutated())
def test_an_independent_parser_agrees_with_every_record_that_is_accepted(value: bytes) -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), value
        return dict(pairs)

    result = decoded(value, "keep")
    assert len(result.accepted) + len(result.rejected) == 1
    for event in result.accepted.to_pylist():
        expected = json.loads(value, object_pairs_hook=once)
        assert event["labels"] == (None if expected.get("labels") is None else sorted(expected["labels"].items()))
        assert event["extra"] is None or json.loads(event["extra"]) == expected["extra"]
        commits = (expected.get("payload") or {}).get("commits", [])
        assert [c["sha"] for c in (event["payload"] or {}).get("commits", [])] == [c["sha"] for c in commits]
        kept = json.loads(event[REST]) if event[REST] else {}
        unknown = {name: cell for name, cell in expected.items() if name not in SCHEMA}
        assert {name: kept.get(name) for name in unknown} == unknown
