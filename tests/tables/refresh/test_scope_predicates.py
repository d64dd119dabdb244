"""Predicates of scopes select the right input rows, also at their bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.tables.declared import a_table, a_topic
from twofold.infra.delta.file_pruning import prune_files
from twofold.infra.instants import Interval, epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.scope import Scope
from twofold.tables.refresh.scope_expressions import is_total
from twofold.tables.refresh.scope_predicates import ScopeFilter, with_held_values
from twofold_algebra.reading.expression_text import value_of

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
INSTANT = timedelta(microseconds=1)
AT_TEN = Interval(epoch_ms(TEN) or 0, epoch_ms(TEN + HOUR) or 0)
UTC_TIME = pa.timestamp("us", "UTC")


def found(path: Path, source: Topic | Table, scopes: list[Scope], most: int = 100, **table: Any) -> list[Any] | None:
    """What is read of the input for these scopes of a table with a depends_within of an hour: the column `n`."""
    files = DeltaTable(str(path))
    schema = pa.schema(files.schema())
    wanted = ScopeFilter(a_table(**table), scopes, schema)
    join = wanted.input_join(source, schema)
    assert join
    near = prune_files(files, wanted.input_condition(source, schema.names).bounds())
    rows = near.read_if_small(join, wanted.scopes_near(source, schema), most, schema.names)
    assert rows is None or rows.schema == schema
    return None if rows is None else sorted(rows["n"].to_pylist())


def write(path: Path, **columns: Any) -> None:
    rows = pa.table({**columns, "n": list(range(len(next(iter(columns.values())))))})
    write_deltalake(str(path), rows, mode="append")


def readings(path: Path, sensors: list[str | None], at: list[datetime]) -> None:
    write(path, sensor=pa.array(sensors, pa.string()), read_at=pa.array(at, UTC_TIME))


def test_rows_within_the_lookback_of_a_scope_are_read(tmp_path: Path) -> None:
    first, end = TEN - HOUR, TEN + 2 * HOUR
    readings(tmp_path, ["a"] * 4, [first - INSTANT, first, end - INSTANT, end])
    assert found(tmp_path, a_topic(), [Scope(("a",), AT_TEN)]) == [1, 2]


def test_each_scope_has_its_own_time(tmp_path: Path) -> None:
    next_day = Interval(AT_TEN.start + 86_400_000, AT_TEN.end + 86_400_000)
    readings(tmp_path, ["a", "b", "c", "a", "b"], [TEN, TEN, TEN, TEN + 24 * HOUR, TEN + 24 * HOUR])
    assert found(tmp_path, a_topic(), [Scope(("a",), AT_TEN), Scope(("b",), next_day)]) == [0, 4]


def test_an_input_is_cut_by_the_column_that_has_another_name_there(tmp_path: Path) -> None:
    named = {"recompute_by": ["place"], "scope_columns": {"readings": {"place": "sensor"}}}
    readings(tmp_path, ["a"], [TEN])
    readings(tmp_path, ["c", "b"], [TEN, TEN])
    assert found(tmp_path, a_topic(), [Scope(("b",), AT_TEN)], **named) == [1]
    wanted = ScopeFilter(a_table(**named), [Scope(("b",), AT_TEN)], pa.schema([]))
    assert wanted.input_condition(a_topic(), ["sensor", "read_at"]).bounds().values == {"sensor": frozenset({"b"})}


def test_null_is_a_value_of_a_scope(tmp_path: Path) -> None:
    readings(tmp_path, ["a", None], [TEN, TEN])
    assert found(tmp_path, a_topic(), [Scope((None,), AT_TEN)]) == [1]


def test_a_scope_of_every_time_reads_its_values(tmp_path: Path) -> None:
    readings(tmp_path, ["a", "b", "a"], [TEN, TEN, TEN + 1000 * HOUR])
    assert found(tmp_path, a_topic(), [Scope(("a",), None)]) == [0, 2]


def test_an_input_may_be_dated_by_days(tmp_path: Path) -> None:
    source = a_table(event_time="day", closes_at=None, watermark=None)
    days = pa.array([date(2013, 1, day) for day in range(1, 5)], pa.date32())
    write(tmp_path, sensor=["a"] * 4, day=days)
    day = Interval(AT_TEN.start + 14 * 3_600_000, AT_TEN.start + 38 * 3_600_000)  # the second of January
    assert found(tmp_path, source, [Scope(("a",), day)], depends_within="30 minutes") == [1, 2]
    assert found(tmp_path, source, [Scope(("a",), day)], depends_within="24 hours") == [0, 1, 2]


def test_more_rows_than_are_few_are_not_read(tmp_path: Path) -> None:
    readings(tmp_path, ["a"] * 3, [TEN] * 3)
    assert found(tmp_path, a_topic(), [Scope(("a",), AT_TEN)], most=3) == [0, 1, 2]
    assert found(tmp_path, a_topic(), [Scope(("a",), AT_TEN)], most=2) is None


def test_files_older_than_a_column_are_left_to_spark(tmp_path: Path) -> None:
    readings(tmp_path, ["a"], [TEN])
    rows = pa.table({"sensor": ["a"], "read_at": pa.array([TEN], UTC_TIME), "n": [1], "unit": ["K"]})
    write_deltalake(str(tmp_path), rows, mode="append", schema_mode="merge")
    assert found(tmp_path, a_topic(), [Scope(("a",), AT_TEN)]) is None


def test_of_a_scope_of_any_value_all_rows_of_its_time_are_read(tmp_path: Path) -> None:
    readings(tmp_path, ["a", "b", "a", None], [TEN, TEN, TEN + 24 * HOUR, TEN])
    assert found(tmp_path, a_topic(), [Scope((...,), AT_TEN)]) == [0, 1, 3]
    assert found(tmp_path, a_topic(), [Scope((...,), AT_TEN), Scope(("c",), AT_TEN)]) == [0, 1, 3]
    assert found(tmp_path, a_topic(), [Scope((...,), None)]) == [0, 1, 2, 3]


def test_of_an_input_without_the_values_all_rows_of_the_times_are_read(tmp_path: Path) -> None:
    readings(tmp_path, ["a", "b", "a"], [TEN, TEN, TEN + 24 * HOUR])
    scopes = [Scope(("x",), AT_TEN)]
    assert found(tmp_path, a_topic(), scopes, recompute_by=["plant"]) == [0, 1]


def test_an_input_is_read_by_the_columns_that_all_scopes_fix(tmp_path: Path) -> None:
    readings(tmp_path, ["a", "b", "a"], [TEN, TEN, TEN + 24 * HOUR])
    by = ["plant", "sensor"]
    assert found(tmp_path, a_topic(), [Scope(("x", "a"), AT_TEN)], recompute_by=by) == [0]
    assert found(tmp_path, a_topic(), [Scope((..., "a"), AT_TEN), Scope(("y", "a"), AT_TEN)], recompute_by=by) == [0]
    assert found(tmp_path, a_topic(), [Scope((..., "a"), None)], recompute_by=by) == [0, 2]
    assert found(tmp_path, a_topic(), [Scope((..., "a"), AT_TEN), Scope((..., ...), AT_TEN)], recompute_by=by) == [0, 1]


@pytest.mark.parametrize(
    ("value", "kinds", "is_held"),
    [
        ("a", [pa.string(), pa.string()], True),
        ("5", [pa.string(), pa.int64()], False),
        (5, [pa.int64(), pa.int32(), pa.float64(), pa.decimal128(38, 2)], True),
        (2**40, [pa.int64(), pa.int32()], False),
        (2**53 + 1, [pa.int64(), pa.float64()], False),
        (5.5, [pa.float64(), pa.int64()], False),
        (0.1, [pa.float64(), pa.float32()], False),
        (Decimal("0.5"), [pa.decimal128(3, 2), pa.float64()], False),
        (Decimal("0.25"), [pa.decimal128(3, 2), pa.decimal128(10, 1)], False),
        (Decimal("0.20"), [pa.decimal128(3, 2), pa.decimal128(10, 1)], True),
        (TEN.date(), [pa.date32(), UTC_TIME], True),
        (TEN, [UTC_TIME, pa.date32()], False),
        (b"a", [pa.binary(), pa.string()], False),
        (True, [pa.bool_(), pa.int64()], False),
        (None, [pa.string(), pa.int64()], True),
    ],
)
def test_a_value_that_a_relation_cannot_hold_is_not_cut(value: Any, kinds: list[pa.DataType], is_held: bool) -> None:
    scopes = [Scope((value, "x"), AT_TEN)]
    [scope] = with_held_values(scopes, [kinds, [pa.string()]])
    assert scope == Scope((value if is_held else ..., "x"), AT_TEN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repo.name", True),
        ("lower(coalesce(repo.name, sensor))", True),
        ("year(at)", True),
        ("to_date(from_utc_timestamp(at, 'America/New_York'))", True),
        ("cast(at AS DATE)", True),
        ("cast(at AS INT)", False),
        ("cast(sensor AS DATE)", False),
        ("to_date(sensor)", False),
        ("(value / 2)", False),
        ("names[0]", False),
    ],
)
def test_an_expression_that_can_fail_restricts_no_input(text: str, expected: bool) -> None:
    kinds = {"at": pa.timestamp("us", "UTC"), "sensor": pa.string(), "value": pa.float64(), "repo": pa.struct([])}
    kinds["names"] = pa.list_(pa.string())
    assert is_total(value_of(text), kinds) is expected
