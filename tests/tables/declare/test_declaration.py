"""A mistake in a declaration is found where it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import READINGS, a_table, a_topic
from twofold.batch.ledgers.run_result import RunResult
from twofold.infra.duration import parse_duration
from twofold.infra.encodings.column_types import FieldType, parse_type
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import between, not_null, unique
from twofold.tables.declare.analysis import wrong_types
from twofold.tables.declare.topic import DeviceClock


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90 seconds", 90_000),
        ("2 hours", 7_200_000),
        ("1 day 12 hours", 129_600_000),
        ("1 DAY", 86_400_000),
        ("5 milliseconds", 5),
        ("0 seconds", 0),
    ],
)
def test_a_length_of_time_is_read_in_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text, "depends_within") == milliseconds


@pytest.mark.parametrize("text", ["", " ", "2", "hours", "2 months", "1 year", "-1 hours", "2 hours and", "1.5 hours"])
def test_what_is_no_fixed_length_of_time_is_refused_under_its_parameter(text: str) -> None:
    with pytest.raises(BadDeclaration, match="depends_within=") as error:
        parse_duration(text, "depends_within")
    assert "90 seconds" in str(error.value.hint)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", FieldType(name="int")),
        ("string?", FieldType(name="string", nullable=True)),
        ("array<double>", FieldType(name="array", element=FieldType(name="double"))),
        ("array<timestamp>?", FieldType(name="array", element=FieldType(name="timestamp"), nullable=True)),
    ],
)
def test_a_field_type_is_read(text: str, expected: FieldType) -> None:
    assert parse_type("column", text) == expected


def test_types_are_those_that_delta_keeps() -> None:
    arrow = {name: FieldType(name=name).arrow for name in ("int", "long", "double", "date", "timestamp", "boolean")}
    assert arrow == {
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "boolean": pa.bool_(),
    }
    assert parse_type("a", "array<int>").arrow == pa.list_(pa.field("element", pa.int32(), nullable=False))


@pytest.mark.parametrize(
    ("text", "hint"),
    [("strin", "'string'"), ("doubel", "'double'"), ("array<in>", "'int'"), ("decimal", "allows null")],
)
def test_an_unknown_type_names_the_column_and_the_nearest_type(text: str, hint: str) -> None:
    with pytest.raises(BadDeclaration, match="price has the type") as error:
        parse_type("price", text)
    assert hint in str(error.value.hint)


CLOCK = DeviceClock(event="read_at", sent="sent_at")


@pytest.mark.parametrize("bound", ["0 seconds", "a bit"])
def test_a_clock_without_a_bound_is_refused(bound: str) -> None:
    with pytest.raises(BadDeclaration, match=f"bound='{bound}'"):
        DeviceClock(event="read_at", sent="sent_at", bound=bound)


def test_a_corrected_event_time_is_a_column_of_the_events_alone() -> None:
    schema = {**READINGS.schema, "sent_at": "timestamp"}
    topic = a_topic(schema=schema, event_time="at", clock=CLOCK)
    assert list(topic.types) == ["sensor", "read_at", "value", "count", "sent_at"]
    assert list(topic.columns) == [*topic.types, "at"]
    assert topic.same_record == ("sensor", "read_at")
    assert a_topic().same_record == ("sensor", "read_at")
    assert a_topic(dedup_keys=["read_at", "sensor"]).same_record == ("read_at", "sensor")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_time": "at"}, "event_time names at, which the schema lacks"),
        ({"event_time": "sensor"}, "event_time='sensor' is declared 'string'"),
        ({"schema": {**READINGS.schema, "read_at": "timestamp?"}}, "event_time='read_at' is declared 'timestamp[?]'"),
        ({"message_key": "senser"}, "message_key names senser"),
        ({"dedup_keys": ["sensor", "nonce"]}, "dedup_keys names nonce"),
        ({"dedup_keys": []}, "dedup_keys is empty"),
        ({"dedup_keys": "sensor"}, "dedup_keys='sensor': expected a list of columns"),
        ({"checks": [unique("sensor")]}, "cannot be decided on a record alone"),
        ({"checks": [not_null("colour")]}, "names colour, which the schema lacks"),
        ({"checks": ["value > 0"]}, "expected rules"),
        ({"partitions": 0}, "partitions=0: expected at least 1"),
        ({"max_bytes": 0}, "max_bytes=0: expected at least 1"),
        ({"segment_bytes": 1_000}, "segment_bytes=1000: expected at least 1048576"),
        ({"local_retention": "a while"}, "local_retention='a while'"),
        ({"max_future_skew": "soon"}, "max_future_skew='soon'"),
        ({"idle_timeout": "a while"}, "idle_timeout='a while'"),
        ({"idle_timeout": "0 seconds"}, "idle_timeout='0 seconds': expected more than nothing"),
        ({"report_time": "reported_at"}, "report_time names reported_at, which the schema lacks"),
        ({"report_time": "sensor"}, "report_time='sensor' is declared 'string'; expected 'timestamp'."),
        ({"clock": CLOCK}, "event_time='read_at' is a column of the schema; with a clock it is the corrected time"),
        ({"clock": "sent_at"}, "clock='sent_at': expected a DeviceClock"),
        ({"clock": CLOCK, "event_time": "at"}, "clock names sent_at, which the schema lacks"),
        (
            {"clock": CLOCK, "event_time": "at", "schema": {**READINGS.schema, "sent_at": "timestamp?"}},
            "clock='sent_at' is declared 'timestamp[?]'",
        ),
        (
            {"clock": CLOCK, "event_time": "Count", "schema": {**READINGS.schema, "sent_at": "timestamp"}},
            "'Count' and 'count' differ only in case",
        ),
        ({"schema": {**READINGS.schema, "_offset": "long"}}, "'_offset' cannot name a column"),
        ({"schema": {**READINGS.schema, "two words": "long"}}, "'two words' cannot name a column"),
        ({"schema": {**READINGS.schema, "class": "long"}}, "'class' cannot name a column"),
        ({"schema": {**READINGS.schema, "Value": "long"}}, "'Value' and 'value' differ only in case"),
    ],
)
def test_a_topic_that_cannot_hold_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        replace(READINGS, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"primary_key": "sensor"}, "primary_key='sensor': expected a list of columns"),
        ({"recompute_by": "sensor"}, "recompute_by='sensor': expected a list"),
        ({"primary_key": []}, "primary_key is empty"),
        ({"derive": "hours"}, "derive='hours': expected a function"),
        ({"derive": lambda: None}, "has no parameters"),
        ({"late": "ignore"}, "late='ignore': expected 'correct' or 'drop'"),
        (
            {"sequence_by": ["total", "hour"]},
            "With closes_at, sequence_by must start with event_time 'hour'; it starts with 'total'",
        ),
        ({"depends_within": None}, "closes_at needs event_time and depends_within"),
        ({"event_time": None}, "closes_at needs event_time and depends_within"),
        ({"event_time": None, "closes_at": None}, "depends_within needs event_time"),
        ({"watermark": "2 month"}, "watermark='2 month'"),
        ({"depends_within": "soon"}, "depends_within='soon'"),
        ({"checks": ["flights > 0"]}, "expected rules"),
    ],
)
def test_a_table_that_cannot_hold_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDeclaration, match=message):
        a_table(**changes)


def test_what_is_declared_can_be_read_back() -> None:
    topic = a_topic(checks=[between("value", 0, 1)], local_retention="2 hours")
    assert (topic.full_name, topic.local_retention_ms, topic.dedup_keys) == ("plant.readings", 7_200_000, ("sensor",))
    table = a_table()
    assert (table.full_name, table.inputs, table.primary_key) == ("plant.hours", ("readings",), ("sensor", "hour"))
    assert (table.watermark_ms, table.depends_within_ms) == (7_200_000, 3_600_000)
    assert a_table(closes_at=None, depends_within=None).depends_within_ms is None


def test_the_columns_of_a_table_are_described_by_its_functions_docstring() -> None:
    def hours(readings: Any) -> Any:
        """Readings of each sensor: by hour.

        sensor: which
        hour: its start,
            in UTC
        Not indented: no column has a name of two words.

        total, mean: of their values,
            volts
        """
        return readings

    of = {"sensor": "which", "hour": "its start, in UTC", **dict.fromkeys(["total", "mean"], "of their values, volts")}
    assert a_table(derive=hours).columns == of
    assert a_table().columns == {}


def test_an_outcome_counts_all_kinds_of_change() -> None:
    assert RunResult(table="plant.hours", cause="late", run="r", inserted=1, updated=20, deleted=300).changed == 321


@pytest.mark.parametrize(("kind", "is_refused"), [("UTF8_LCASE", True), ("UTF8_BINARY", False)])
def test_a_column_of_texts_with_a_collation_is_refused(kind: str, is_refused: bool) -> None:
    from pyspark.sql import types as T

    schema = T.StructType([T.StructField("words", T.ArrayType(T.StringType(kind)))])
    said = [mistake.message for mistake in wrong_types(a_table(), schema)]
    assert ["words is of the type array<string collate UTF8_LCASE>: by a collation" in text for text in said] == [
        True
    ] * is_refused
