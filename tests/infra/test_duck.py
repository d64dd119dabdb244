"""Connections to DuckDB share what is costly to make, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

from infra.duck import duckdb_utc


def test_what_one_connection_registers_no_other_one_sees() -> None:
    one, other = duckdb_utc(), duckdb_utc()
    one.register("rows", pa.table({"n": [1]}))
    with pytest.raises(duckdb.CatalogException):
        other.sql("FROM rows")
    other.register("rows", pa.table({"n": [2]}))
    assert (one.sql("FROM rows").fetchall(), other.sql("FROM rows").fetchall()) == ([(1,)], [(2,)])


def test_every_connection_reads_and_shows_instants_in_utc() -> None:
    duckdb_utc().execute("SET TimeZone = 'Asia/Tokyo'")
    assert duckdb_utc().sql("SELECT TIMESTAMPTZ '2013-01-01 00:00:00+01:00' :: VARCHAR").fetchall() == [
        ("2012-12-31 23:00:00+00",)
    ]


def test_threads_use_connections_at_the_same_time() -> None:
    def total(number: int) -> int:
        connection = duckdb_utc()
        connection.register("rows", pa.table({"n": list(range(number))}))
        return int(connection.sql("SELECT sum(n) FROM rows").fetchall()[0][0])

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert list(pool.map(total, range(2, 60))) == [n * (n - 1) // 2 for n in range(2, 60)]
