"""Buckets of equal rows have equal fingerprints, those of different rows have not."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.tables.declared import a_table
from twofold.batch.audit.hash_buckets import Turn, compare_buckets, in_buckets, of_turn, unfound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TABLE = a_table(primary_key=["sensor", "hour"], closes_at=None, tolerances={"planes": 0.1})
COLUMNS = (
    "sensor string",
    "hour timestamp",
    "low double",
    "high double",
    "tags map<string,int>",
    "parts array<struct<n:int>>",
    "planes long",
)
START = datetime(2013, 1, 1, 23, tzinfo=UTC)
ROW: tuple[Any, ...] = ("a", START, 1.5, None, {"x": 1, "y": 2}, [(1,), (None,)], 100)


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), ", ".join(COLUMNS))


def changed(**values: Any) -> tuple[Any, ...]:
    names = [column.split()[0] for column in COLUMNS]
    return tuple(values.get(name, value) for name, value in zip(names, ROW, strict=True))


def test_rows_that_are_the_same_in_another_order_are_equal(spark: SparkSession) -> None:
    other = changed(sensor="b", low=math.nan, high=-0.0)
    one = frame(spark, ROW, other)
    two = frame(spark, changed(sensor="b", low=math.nan, high=0.0), changed(tags={"y": 2, "x": 1}, planes=105))
    found = compare_buckets(TABLE, one, two)
    assert (found.rows, found.differing) == (2, [])
    assert found.buckets <= 2


@pytest.mark.parametrize(
    "values",
    [
        {"low": 1.6},
        {"low": None, "high": 1.5},  # a null and a value change places
        {"tags": {"x": 1, "y": 3}},
        {"tags": None},
        {"parts": [(None,), (1,)]},
        {"hour": START + timedelta(microseconds=1)},
    ],
)
def test_a_row_that_differs_is_found_with_its_bucket_only(spark: SparkSession, values: dict[str, Any]) -> None:
    others = [changed(sensor=f"s{n}", hour=START + timedelta(days=n)) for n in range(1, 5)]
    live = frame(spark, changed(**values), *others)
    found = compare_buckets(TABLE, frame(spark, ROW, *others), live)
    assert len(found.differing) == 1
    assert [row["sensor"] for row in in_buckets(TABLE, live, found.differing).collect()] == ["a"]


@pytest.mark.parametrize(("should", "live"), [(1, 2), (2, 1), (0, 1), (1, 0)])
def test_a_missing_an_extra_and_a_repeated_row_are_found(spark: SparkSession, should: int, live: int) -> None:
    found = compare_buckets(TABLE, frame(spark, *[ROW] * should), frame(spark, *[ROW] * live))
    assert (len(found.differing), found.rows) == (1, live)


def test_every_row_has_its_turn_once(spark: SparkSession) -> None:
    rows = frame(spark, *(changed(sensor=f"s{n}", hour=START + timedelta(hours=n)) for n in range(100)))
    for table in (TABLE, a_table(primary_key=["sensor"], event_time=None, depends_within=None, closes_at=None)):
        turns = [of_turn(table, rows, Turn(number, 3)) for number in range(3)]
        seen = [row["sensor"] for turn in turns for row in turn.collect()]
        assert sorted(seen) == sorted(f"s{n}" for n in range(100))


@pytest.mark.parametrize(
    ("live", "found", "left"),
    [
        (("A", 1.0, 1), [], 1),  # equal by the collation, and not the same text
        (("a", 1.0 + 1e-15, 1), [], 0),  # equal but for rounding
        (("a", 1.0, 2), [("k", 1)], 0),  # found by its key
    ],
)
def test_what_no_key_finds_is_counted(
    spark: SparkSession, live: tuple[str, float, int], found: list[tuple[str, int]], left: int
) -> None:
    table = a_table(primary_key=["k"], recompute_by=["k"], event_time=None, depends_within=None, closes_at=None)
    schema = "k string, word string collate UTF8_LCASE, x double, n long"
    sides = [spark.createDataFrame([("k", *values)], schema) for values in (("a", 1.0, 1), live)]
    rows = pa.table({"k": pa.array([k for k, _ in found], pa.string())})
    assert len(compare_buckets(table, *sides).differing) == 1
    assert unfound(table, sides, rows) == left
