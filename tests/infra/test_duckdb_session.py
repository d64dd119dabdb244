"""Connections to DuckDB share what is costly to make, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import ROOT
from twofold.infra.duckdb_session import duckdb_utc, load_extension, parquet, query
from twofold.infra.errors import MissingTool


def test_what_one_connection_registers_no_other_one_sees() -> None:
    one, other = duckdb_utc(), duckdb_utc()
    one.register("rows", pa.table({"n": [1]}))
    with pytest.raises(duckdb.CatalogException):
        other.sql("FROM rows")
    other.register("rows", pa.table({"n": [2]}))
    assert (one.sql("FROM rows").fetchall(), other.sql("FROM rows").fetchall()) == ([(1,)], [(2,)])


def test_every_connection_reads_and_shows_instants_in_utc() -> None:
    program = """if True:
        from twofold.infra.duckdb_session import duckdb_utc
        first, *others = [duckdb_utc() for _ in range(3)]
        first.execute("SET TimeZone = 'America/New_York'")
        for one in (*others, duckdb_utc()):
            print(*one.sql("SELECT TIMESTAMPTZ '2013-01-01 00:00:00+01:00' :: VARCHAR").fetchone())
    """
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": "Asia/Tokyo"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["2012-12-31 23:00:00+00"] * 3


@pytest.mark.parametrize("folder", ["region=eu", "it's", "a*b?", "a [b]", "a b", "ü%20"])
def test_the_name_of_a_folder_neither_gives_nor_replaces_a_column(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder / "rows"
    for name in (folder, "other", "axbx"):
        (tmp_path / name / "rows").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"region": [name]}), tmp_path / name / "rows" / "one.parquet")
    for files in (place, place / "one.parquet"):
        assert query(f"FROM {parquet(files)}").to_pydict() == {"region": [folder]}


def test_threads_use_connections_at_the_same_time() -> None:
    def total(number: int) -> int:
        connection = duckdb_utc()
        connection.register("rows", pa.table({"n": list(range(number))}))
        return int(connection.sql("SELECT sum(n) FROM rows").fetchall()[0][0])

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert list(pool.map(total, range(2, 60))) == [n * (n - 1) // 2 for n in range(2, 60)]


def test_an_extension_that_is_not_installed_is_named() -> None:
    with pytest.raises(MissingTool, match=r"duckdb-extension-none is not installed\.\nHint: `make setup`"):
        load_extension(duckdb_utc(), "none")
