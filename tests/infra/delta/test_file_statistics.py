"""Each reader finds each row by the value of a column: no bound in the statistics of a file hides one."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.duckdb_extensions import with_extension
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.file_pruning import ValueBounds, prune_files
from twofold.infra.delta.file_statistics import bounds_of
from twofold.infra.delta.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "plant.values"
KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "id_": (
        pa.decimal128(20, 0),
        lambda r: Decimal(r.choice([r.getrandbits(64), r.getrandbits(8), -r.getrandbits(63)])),
    ),
    "price": (pa.decimal128(18, 2), lambda r: Decimal(r.randrange(-(10**18) + 1, 10**18)).scaleb(-2)),
    "exact": (pa.decimal128(38, 10), lambda r: Decimal(r.getrandbits(120)).scaleb(-10)),
    "ratio": (pa.float64(), lambda r: r.choice([float("nan"), -0.0, 0.0, float("inf"), r.gauss(0, 1e9), 0.1 + 0.2])),
    "small": (pa.float32(), lambda r: r.choice([float("nan"), -0.0, 0.5, float("-inf"), float(r.randrange(99))])),
    "number": (pa.int64(), lambda r: r.choice([r.getrandbits(63), -r.getrandbits(63), 2**63 - 1, -(2**63), 0])),
    "text": (pa.string(), lambda r: r.choice(["", "é" * 40, "a" * 70, "a" * 70 + "b", chr(r.randrange(32, 0x3000))])),
    "day": (pa.date32(), lambda r: date(1969, 12, 30) + timedelta(days=r.randrange(-9_999, 20_000))),
    "time_": (
        pa.timestamp("us", "UTC"),
        lambda r: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=r.randrange(-(10**15), 10**15)),
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    chance = random.Random(11)
    return [{name: of(chance) for name, (_, of) in KINDS.items()} for _ in range(12)]


@pytest.fixture
def written(lake: Lake, rows: list[dict[str, Any]]) -> Lake:
    """Three files of four rows each."""
    lake.ensure(NAME, SCHEMA, statistics=list(KINDS))
    writer = Writer(lake, NAME)
    for first in range(0, len(rows), 4):
        part = pa.Table.from_pylist(rows[first : first + 4], schema=SCHEMA)
        writer.append(part, CommitTag(app="test", version=first + 1, info={}))
    return lake


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


def expected(rows: list[dict[str, Any]], column: str, value: Any) -> int:
    return sum(same(row[column], value) for row in rows)


@functools.cache
def duckdb_with_delta() -> duckdb.DuckDBPyConnection:
    return with_extension("delta")


def by_duckdb(lake: Lake, column: str, value: Any) -> int:
    kind = {"float": "FLOAT", "double": "DOUBLE"}.get(str(SCHEMA.field(column).type))
    place = f"?::{kind}" if kind else "?"
    query = f"SELECT count(*) FROM delta_scan('{lake.uri(NAME)}') WHERE {column} = {place}"
    found = duckdb_with_delta().execute(query, [value]).fetchone()
    assert found
    return int(found[0])


def by_polars(lake: Lake, column: str, value: Any) -> int:
    known = pl.lit(value, dtype=pl.Series(pa.array([value], SCHEMA.field(column).type)).dtype)
    return int(pl.scan_delta(lake.uri(NAME)).filter(pl.col(column) == known).select(pl.len()).collect().item())


def by_pruning(lake: Lake, column: str, value: Any) -> int:
    """How many rows the files that are left of a list of values have."""
    files = prune_files(lake.open(NAME), ValueBounds(values={column: frozenset([value])}))
    kept = [row[column] for path in files.paths for row in pa.table(_file(lake, path)).to_pylist()]
    return sum(same(one, value) for one in kept)


def _file(lake: Lake, path: str) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(f"{lake.uri(NAME)}/{path}")


@pytest.mark.parametrize("reader", [by_duckdb, by_polars, by_pruning])
@pytest.mark.parametrize("column", KINDS)
def test_a_row_is_found_by_each_of_its_values(
    written: Lake, rows: list[dict[str, Any]], column: str, reader: Callable[[Lake, str, Any], int]
) -> None:
    for row in rows:
        value = row[column]
        assert reader(written, column, value) == expected(rows, column, value), value


def test_spark_finds_a_row_by_its_value(written: Lake, rows: list[dict[str, Any]], spark: SparkSession) -> None:
    """Zeros apart: where a file has one of them in its dictionary, Spark takes the other for one that it lacks."""
    from pyspark.sql import functions as F

    frame = spark.read.format("delta").load(written.uri(NAME))
    for column in ("id_", "exact", "ratio"):
        for value in [*[row[column] for row in rows if row[column]][:2], max(row[column] for row in rows)]:
            known = F.lit(value).cast(frame.schema[column].dataType)
            assert frame.where(F.col(column) == known).count() == expected(rows, column, value), value


def test_untrue_bounds_of_older_files_are_taken_out(lake: Lake, rows: list[dict[str, Any]]) -> None:
    """As delta-rs writes them where a table's property asks for them."""
    lake.ensure(NAME, SCHEMA, statistics=[])
    lake.open(NAME).alter.set_table_properties({"delta.dataSkippingStatsColumns": ",".join(KINDS)})
    for first in range(0, len(rows), 4):
        write_deltalake(lake.uri(NAME), pa.Table.from_pylist(rows[first : first + 4], schema=SCHEMA), mode="append")
    before, value = lake.open(NAME), max(row["id_"] for row in rows)
    assert by_duckdb(lake, "id_", value) == 0, "the bound hides it"

    lake.keep_statistics(NAME, list(KINDS))
    for column in ("id_", "price", "exact", "text", "time_"):
        for row in rows:
            assert by_duckdb(lake, column, row[column]) == expected(rows, column, row[column])
    after = lake.open(NAME)
    assert (sorted(after.file_uris()), lake.rows(NAME)) == (sorted(before.file_uris()), len(rows))
    assert not any(c.changes for c in lake.commits(NAME, before.version(), after.version()))
    kept = pa.table(after.get_add_actions(flatten=True))
    assert {name.removeprefix("min.") for name in kept.column_names if name.startswith("min.")} == {
        "number",
        "text",
        "day",
        "time_",
    }

    lake.keep_statistics(NAME, list(KINDS))
    assert lake.version(NAME) == after.version(), "a second time there is nothing to do"


@pytest.mark.parametrize("column", ["time_", "day", "number", "exact", "missing"])
def test_the_bounds_of_a_column_are_those_of_its_rows(written: Lake, rows: list[dict[str, Any]], column: str) -> None:
    """A decimal has no bounds in the statistics: its rows are read."""
    values = [row[column] for row in rows if column in row]
    bounds = [min(values), max(values)] if values else [None, None]
    if column == "time_":  # statistics have milliseconds
        bounds = [value.replace(microsecond=value.microsecond // 1_000 * 1_000) for value in bounds]
    assert list(bounds_of(written.open(NAME), column)) == bounds


def test_bounds_are_those_of_the_rows_where_a_file_has_no_statistics(lake: Lake) -> None:
    kinds = pa.schema([("day", pa.date32()), ("id", pa.int64())])
    lake.ensure(NAME, kinds, statistics=["id"])
    assert bounds_of(lake.open(NAME), "day") == (None, None)
    days = [date(2013, 1, 3), None, date(2013, 1, 1)]
    first = pa.table({"day": days, "id": [1, 2, 3]}, schema=kinds)
    Writer(lake, NAME).append(first, CommitTag(app="test", version=1, info={}))
    assert bounds_of(lake.open(NAME), "day") == (date(2013, 1, 1), date(2013, 1, 3))
    assert bounds_of(lake.open(NAME), "id") == (1, 3)
