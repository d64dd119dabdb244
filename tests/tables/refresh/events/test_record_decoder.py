"""A record becomes an event or quarantined bytes with every reason, never both and never nothing."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loaded_modules import loading_none_of
from tests.tables.declared import a_topic, bound_as
from tests.tables.typed_records import APPENDED, GOOD, TOPIC, raw
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoded, Decoder, events_schema


def decoded(*values: bytes | None, newest_ms: int | None = None) -> Decoded:
    return Decoder(TOPIC).decode(raw(values), newest_ms)


def with_field(text: str) -> bytes:
    return GOOD[:-1] + b"," + text.encode() + b"}"


def field(text: str, column: str) -> Any:
    result = decoded(with_field(text))
    assert result.rejected["reasons"].to_pylist() == []
    return result.accepted[column].to_pylist()[0]


def reasons(value: bytes | None) -> list[str]:
    result = decoded(value)
    assert len(result.accepted) == 0
    found: list[str] = result.rejected["reasons"].to_pylist()[0]
    return found


def test_loading_the_decoder_loads_no_compiler() -> None:
    compilers = {"numba", "llvmlite", "fastavro", "google.protobuf"}
    loading_none_of(compilers, "import twofold.batch.reconcile, twofold.tables.refresh.events.record_decoder")


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ('"small":100', "small", 100),
        ('"small":null', "small", None),
        ('"yes":true', "yes", True),
        ('"big":9223372036854775807', "big", 2**63 - 1),
        ('"big":-9223372036854775808', "big", -(2**63)),
        ('"ratio":1', "ratio", 1.0),
        ('"ratio":-1.5e3', "ratio", -1500.0),
        ('"day":"2012-02-29"', "day", date(2012, 2, 29)),
        ('"tags":["x","y\\u00e9"]', "tags", ["x", "yé"]),
        ('"tags":[]', "tags", []),
        ('"times":["2013-01-01T10:00:00+02:00"]', "times", [datetime(2013, 1, 1, 8, tzinfo=UTC)]),
    ],
)
def test_a_field_keeps_its_value(text: str, column: str, value: object) -> None:
    assert field(text, column) == value


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2013-01-01T10:00:00.123456Z", datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2013-01-01T10:00:00-05:00", datetime(2013, 1, 1, 15, tzinfo=UTC)),
        ("1969-12-31T23:59:59.5Z", datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_an_event_time_is_an_instant_in_utc(text: str, moment: datetime) -> None:
    result = decoded(GOOD.replace(b"2013-01-01T10:00:00Z", text.encode()), newest_ms=0)
    assert result.accepted["at"].to_pylist() == [moment]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "truncated"),
        (GOOD[:-1], "truncated"),
        (GOOD + b"}", "trailing characters"),
        (b"\xef\xbb\xbf" + GOOD, "malformed"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'{"id":"a"}', "missing required field `at`"),
        (GOOD.replace(b'"a"', b"null"), "Expected `str`, got `null` at `id`"),
        (GOOD.replace(b'"a"', b'"\xff"'), "'utf-8' codec can't decode"),
        (GOOD.replace(b'"a"', b'"\\ud800"'), "surrogate"),
        (GOOD.replace(b"10:00:00Z", b"10:00:00"), "timezone"),
        (GOOD.replace(b'"2013-01-01T10:00:00Z"', b"1357034400000"), "Expected `datetime`, got `int` at `at`"),
        (GOOD.replace(b"2013-01-01T10", b"2013-02-30T10"), "Invalid RFC3339 encoded datetime at `at`"),
        (GOOD.replace(b"2013-01-01T10:00:00Z", b"0001-01-01T00:00:00+01:00"), "year from 1 to 9999 in UTC at `at`"),
        (GOOD.replace(b"2013-01-01T10:00:00Z", b"9999-12-31T23:59:59-01:00"), "year from 1 to 9999 in UTC at `at`"),
        (with_field('"times":["2013-01-01T10:00:00Z","0001-01-01T00:00:00+01:00"]'), "in UTC at `times[1]`"),
        (with_field('"ratio":NaN'), "malformed"),
        (with_field('"ratio":Infinity'), "malformed"),
        (with_field('"ratio":1e400'), "out of range at `ratio`"),
        (with_field('"ratio":"1.5"'), "Expected `float | null`, got `str` at `ratio`"),
        (with_field('"small":2147483648'), "<= 2147483647 at `small`"),
        (with_field('"small":1.0'), "got `float` at `small`"),
        (with_field('"big":9223372036854775808'), "at `big`"),
        (with_field('"tags":["x",null]'), "got `null` at `tags[1]`"),
        (with_field('"colour":"red"'), "unknown field `colour`"),
        (with_field('"colour":' + "[" * 400 + "]" * 400), "unknown field `colour`"),
        (with_field('"tags":["' + "x" * 1_000 + '"]'), "bytes: expected at most 1000"),
        (with_field('"id":"b"'), "the key 'id' is repeated"),
        (with_field('"id" :"b"'), "the key 'id' is repeated"),
        (with_field('"id"\r\n\t :"b"'), "the key 'id' is repeated"),
        (with_field('"\\u0069d":"b"'), "the key 'id' is repeated"),
        (with_field('"small":1,"small":2'), "the key 'small' is repeated"),
    ],
)
def test_a_record_that_does_not_fit_is_quarantined_with_the_reason(value: bytes | None, reason: str) -> None:
    (found,) = reasons(value)
    assert reason in found


def test_a_repeated_key_in_a_complete_record_is_found() -> None:
    record = {
        "id": "a",
        "at": "2013-01-01T10:00:00Z",
        "small": 1,
        "big": 2,
        "ratio": 0.5,
        "yes": True,
        "day": "2013-01-01",
        "tags": ["x"],
        "times": ["2013-01-01T10:00:00Z"],
    }
    whole = json.dumps(record, separators=(",", ":")).encode()
    assert decoded(whole).accepted["small"].to_pylist() == [1]
    assert reasons(whole[:-1] + b',"small":2}') == ["the key 'small' is repeated"]
    # As many plain `":` as fields: only the white space, or the absent field, gives it away.
    assert reasons(whole[:-1] + b',"small" :2}') == ["the key 'small' is repeated"]
    assert reasons(whole.replace(b'"big":2', b'"small":2')) == ["the key 'small' is repeated"]


def test_text_that_looks_like_a_key_is_no_key() -> None:
    assert field('"tags":["\\"id\\":\\"b\\""]', "tags") == ['"id":"b"']


def test_white_space_between_tokens_means_nothing() -> None:
    assert len(decoded(b' {\n "id" : "a" ,\t"at" :"2013-01-01T10:00:00Z"\r\n} ').accepted) == 1


def test_an_oversized_record_is_not_decoded() -> None:
    assert reasons(b"\xff" * 1_001) == ["1001 bytes: expected at most 1000"]
    assert len(decoded(GOOD + b" " * (1_000 - len(GOOD))).accepted) == 1


def test_deep_nesting_ends_in_quarantine() -> None:
    deep = bound_as(Topic(**{**vars_of(TOPIC), "max_bytes": 10**7}), "records")
    value = with_field('"colour":' + '{"a":' * 100_000 + "1" + "}" * 100_000)
    result = Decoder(deep).decode(raw([value]), None)
    assert (len(result.accepted), len(result.rejected)) == (0, 1)


def vars_of(topic: Topic) -> dict[str, Any]:
    return {
        name: getattr(topic, name)
        for name in ("schema", "event_time", "message_key", "dedup_keys", "checks", "max_bytes")
    }


def test_every_broken_rule_is_a_reason() -> None:
    value = GOOD.replace(b'"a"', b'"A1"')[:-1] + b',"small":101,"yes":false}'
    assert reasons(value) == ["matches(id, [a-z]+)", "between(small, 0, 100)", "one_of(yes, [True])"]


def test_both_sides_keep_the_order_and_the_place_of_each_record() -> None:
    result = decoded(GOOD, None, GOOD.replace(b'"a"', b'"b"'), GOOD.replace(b'"a"', b'"B"'), b"{")
    assert result.accepted.select(["id", PARTITION, OFFSET]).to_pylist() == [
        {"id": "a", PARTITION: 3, OFFSET: 100},
        {"id": "b", PARTITION: 3, OFFSET: 102},
    ]
    assert result.rejected.select([OFFSET, "key", "value"]).to_pylist() == [
        {OFFSET: 101, "key": b"k", "value": None},
        {OFFSET: 103, "key": b"k", "value": GOOD.replace(b'"a"', b'"B"')},
        {OFFSET: 104, "key": b"k", "value": b"{"},
    ]
    assert set(result.accepted["_appended_at"].to_pylist()) == {APPENDED}


def test_nothing_decodes_to_nothing() -> None:
    result = decoded()
    assert (len(result.accepted), len(result.rejected)) == (0, 0)
    assert result.accepted.schema == events_schema(TOPIC)


@pytest.mark.parametrize(
    ("event_time", "newest_ms", "late_by_ms"),
    [
        ("1970-01-01T00:00:01Z", None, None),
        ("1970-01-01T00:00:01Z", 5_000, 4_000),
        ("1970-01-01T00:00:09Z", 5_000, -4_000),
        ("1970-01-01T00:00:01.000999Z", 5_000, 4_000),
        ("1969-12-31T23:59:59.999Z", 0, 1),
        ("1969-12-31T23:59:59.999001Z", 0, 1),
        ("1969-12-31T23:59:59.998999Z", 0, 2),
        ("1969-12-31T23:59:59Z", -5_000, -4_000),
        # Microseconds of such years do not fit a double.
        ("9999-12-31T23:59:59.999999Z", 253_402_300_800_000, 1),
        ("0001-01-01T00:00:00.000001Z", -62_135_596_799_999, 1),
    ],
)
def test_lateness_is_the_newest_time_before_minus_the_own_rounded_down(
    event_time: str, newest_ms: int | None, late_by_ms: int | None
) -> None:
    value = GOOD.replace(b"2013-01-01T10:00:00Z", event_time.encode())
    assert decoded(value, newest_ms=newest_ms).accepted[LATE_BY_MS].to_pylist() == [late_by_ms]


def test_a_replayed_record_says_so() -> None:
    assert Decoder(TOPIC, replayed=True).decode(raw([GOOD]), 0).accepted[REPLAYED].to_pylist() == [True]
    assert decoded(GOOD).accepted[REPLAYED].to_pylist() == [False]


def test_a_topic_without_rules_takes_all_that_parse() -> None:
    result = Decoder(a_topic()).decode(raw([b'{"sensor":"A 1","read_at":"2013-01-01T10:00:00Z"}']), None)
    assert result.accepted["sensor"].to_pylist() == ["A 1"]


def test_record_batches_and_further_columns_are_taken() -> None:
    table = raw([GOOD]).append_column("topic", pa.array(["plant.records"]))
    assert len(Decoder(TOPIC).decode(table.to_batches()[0], None).accepted) == 1


def test_a_part_of_a_batch_decodes_as_it_would_alone() -> None:
    repeated = with_field('"id":"b"')
    values = [repeated, GOOD, None, repeated, b":", b"", GOOD, repeated]
    whole = Decoder(TOPIC).decode(raw(values), 0)
    assert whole.accepted[OFFSET].to_pylist() == [101, 106]
    for start in range(len(values) + 1):
        for length in range(len(values) + 1 - start):
            part = raw(values).slice(start, length)
            result = Decoder(TOPIC).decode(part, 0)
            offsets = part["offset"].to_pylist()
            assert result.accepted[OFFSET].to_pylist() == [o for o in (101, 106) if o in offsets]
            assert result.rejected[OFFSET].to_pylist() == [o for o in offsets if o not in (101, 106)]
    chunked = pa.concat_tables([raw(values[:3]), raw([]), raw(values[3:])])
    assert Decoder(TOPIC).decode(chunked, 0).rejected["reasons"].to_pylist() == whole.rejected["reasons"].to_pylist()
    assert len(Decoder(TOPIC).decode(RAW_SCHEMA.empty_table(), 0).accepted) == 0
    assert len(Decoder(TOPIC).decode(raw(values).filter(pa.array([False] * len(values))), 0).accepted) == 0


def test_a_decoder_travels_to_workers() -> None:
    decoder = Decoder(TOPIC, replayed=True)
    decoder.decode(raw([GOOD]), None)
    travelled = pickle.loads(pickle.dumps(decoder))
    assert travelled == decoder
    assert len(travelled.decode(raw([GOOD]), None).accepted) == 1


COMPLETE = with_field('"small":7,"ratio":0.25,"tags":["x","y"],"day":"2013-01-01"')


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good record with a few bytes changed, removed or put in."""
    value = bytearray(draw(st.sampled_from([GOOD, COMPLETE])))
    for _ in range(draw(st.integers(0, 4))):
        position = draw(st.integers(0, len(value)))
        removed = draw(st.integers(0, 3))
        value[position : position + removed] = draw(st.binary(max_size=3) | st.sampled_from([b'"', b":", b"9" * 400]))
    return bytes(value)


@given(st.lists(st.none() | st.binary(max_size=60) | mutated(), max_size=12))
def test_whatever_comes_every_record_ends_on_exactly_one_side(values: list[bytes | None]) -> None:
    result = decoded(*values, newest_ms=0)
    places = [result.accepted[OFFSET].to_pylist(), result.rejected[OFFSET].to_pylist()]
    assert places == [sorted(places[0]), sorted(places[1])]
    assert sorted(places[0] + places[1]) == list(range(100, 100 + len(values)))
    assert all(result.rejected["reasons"].to_pylist())
    for event, offset in zip(result.accepted.to_pylist(), places[0], strict=True):
        value = values[offset - 100]
        assert value is not None
        # An independent parser agrees with what was taken in.
        told = json.loads(value)
        assert (event["id"], event["small"], event["ratio"]) == (told["id"], told.get("small"), told.get("ratio"))
