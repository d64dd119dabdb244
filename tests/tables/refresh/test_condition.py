"""A condition chooses the same rows in each engine, and files that hold them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from twofold.infra.delta.file_pruning import prune_files
from twofold.infra.duckdb_session import duckdb_utc, parquet
from twofold.infra.instants import Interval
from twofold.tables.refresh.condition import Condition
from twofold_algebra.expression_sql import column_of, path_of
from twofold_algebra.reading.expression_text import value_of
from twofold_algebra.sql.names import DATAFUSION, DUCKDB, SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
YEARS = [1, 1500, 1582, 1969, 2013, 9999]
MOMENTS = [dt.datetime(year, 10, 9, hour, 59, 59, 999_999) for year in YEARS for hour in (0, 23)]
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "it's", "\\", "é", 'a"b', "%_"]),
    "whole": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "small": (pa.int16(), [-(2**15), 0, 7]),
    "flag": (pa.bool_(), [True, False]),
    "amount": (pa.decimal128(20, 2), [Decimal("-0.50"), Decimal("0.00"), Decimal("1.10"), Decimal(10**17)]),
    "bytes": (pa.binary(), [b"", b"a", b"\x00'\xff"]),
    "day": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "local": (LOCAL, MOMENTS),
    "at": (INSTANT, [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "ratio": (pa.float64(), [float("nan"), -0.0, 0.0, float("inf"), 1.5]),
    "odd name.\"`'": (pa.string(), ["a", "b"]),
}
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        *((name, kind) for name, (kind, _) in POOLS.items()),
        ("part", pa.struct([("name", pa.string()), ("sizes", pa.list_(pa.int32()))])),
        ("closes", INSTANT),
    ]
)
LISTED = [column_of(name) for name in POOLS if name != "ratio"] + [value_of("part.name")]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)


def random_rows(seed: int, count: int = 80) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    rows = []
    for n in range(count):
        row = {name: chance.choice([*pool, None]) for name, (_, pool) in POOLS.items()}
        part = chance.choice([None, {"name": None, "sizes": []}, {"name": "a", "sizes": [1]}, {"name": "b"}])
        rows.append({"n": n, **row, "part": part, "closes": chance.choice([*POOLS["at"][1], None])})
    return rows


def random_condition(chance: random.Random) -> Condition:
    values: dict[Any, set[Any]] = {}
    for one in chance.sample(LISTED, chance.randint(0, 2)):
        path = path_of(one) or []
        pool = POOLS[path[0]][1] if len(path) == 1 else ["a", "b"]
        values[one] = set(chance.sample([*pool, None, None], chance.randint(1, len(pool))))
    edges = sorted(micros(chance.choice(MOMENTS)) // 1_000 + chance.randint(-1, 1) for _ in range(4))
    return Condition(
        values=values,
        time=chance.choice(["day", "local", "at", None]),
        ranges=chance.choice([[Interval(*edges[:2]), Interval(*edges[2:])], [Interval(edges[1], edges[2])], []]),
        has_undated=chance.random() < 0.5,
        closing=chance.choice(["closed", "open", None]),
        closes="closes",
        closed_before_ms=edges[2],
    )


def micros(moment: dt.datetime | dt.date) -> int:
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // dt.timedelta(microseconds=1)


def holds(condition: Condition, row: dict[str, Any]) -> bool:
    """What the condition means, by its own words."""
    for one, values in condition.values.items():
        value: Any = row
        for name in path_of(one) or []:
            value = None if value is None else value.get(name)
        if value not in values:
            return False
    if condition.time and condition.ranges:
        at = row[condition.time]
        if at is None:
            if not condition.has_undated:
                return False
        elif condition.time == "day":
            days = micros(at) // 86_400_000_000
            if not any(r.start // 86_400_000 <= days <= r.end // 86_400_000 for r in condition.ranges):
                return False
        elif not any(r.start * 1_000 <= micros(at) <= r.end * 1_000 for r in condition.ranges):
            return False
    closes = row["closes"]
    is_closed = closes is not None and micros(closes) < condition.closed_before_ms * 1_000
    return condition.closing is None or is_closed is (condition.closing == "closed")


def cases(count: int) -> Iterator[tuple[list[dict[str, Any]], Condition, list[int]]]:
    for seed in range(count):
        rows, condition = random_rows(seed), random_condition(random.Random(seed))
        yield rows, condition, [row["n"] for row in rows if holds(condition, row)]


@pytest.fixture
def delta(tmp_path: Path) -> Any:
    def written(rows: Sequence[dict[str, Any]], files: int = 4) -> DeltaTable:
        place, size = tmp_path / f"t{len(list(tmp_path.iterdir()))}", len(rows) // files
        for start in range(0, len(rows), size):
            part = pa.Table.from_pylist(list(rows[start : start + size]), SCHEMA)
            write_deltalake(str(place), part, mode="append")
        return DeltaTable(str(place))

    return written


def test_conditions_choose_what_they_say_in_duckdb_and_datafusion(delta: Any) -> None:
    chosen = 0
    for rows, condition, expected in cases(60):
        table = delta(rows)
        chosen += len(expected)
        connection = duckdb_utc()
        connection.register("arrow", pa.Table.from_pylist(rows, SCHEMA))
        where = condition.sql(DUCKDB, SCHEMA, "rows")
        for source in ("arrow", parquet(*map(Path, table.file_uris()))):
            found = connection.execute(f"SELECT n FROM {source} AS rows WHERE {where} ORDER BY n").fetchall()
            assert [n for (n,) in found] == expected, (source[:5], condition)
        plain = {one: values for one, values in condition.values.items() if len(path_of(one) or []) == 1}
        known = replace(condition, values=plain)
        scanned = pa.table(table.scan(columns=["n"], predicate=known.sql(DATAFUSION, SCHEMA)))["n"].to_pylist()
        assert sorted(scanned) == [row["n"] for row in rows if holds(known, row)], condition
        files = prune_files(table, condition.bounds()).paths
        kept = {n for path in files for n in pa.parquet.read_table(f"{table.table_uri}/{path}")["n"].to_pylist()}
        assert kept >= set(expected), condition
    assert 200 < chosen < 3_000


@pytest.mark.spark
def test_conditions_choose_what_they_say_in_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows, conditions = random_rows(7, 200), [random_condition(random.Random(seed)) for seed in range(150)]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    wanted = [
        F.coalesce(F.expr(one.sql(SPARK, SCHEMA)), F.lit(False)).alias(f"c{k}") for k, one in enumerate(conditions)
    ]
    found = frame.select("n", *wanted).toArrow().sort_by("n").to_pylist()
    for k, condition in enumerate(conditions):
        assert [row[f"c{k}"] for row in found] == [holds(condition, row) for row in rows], condition
