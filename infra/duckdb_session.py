"""DuckDB sessions in this process, for small sets of rows."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.infra.extras import package_folder
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_lock = threading.Lock()
_PATTERN = str.maketrans({sign: f"[{sign}]" for sign in "*?["})


def duckdb_utc() -> DuckDBPyConnection:
    """Opens a DuckDB connection in time zone UTC; relations registered with it are visible to it alone.

    All connections share one in-memory database, which takes 11 ms of CPU to create: their tables must be temporary.
    """
    with _lock:
        return _database().cursor()


def query(sql: str, parameters: Sequence[object] = (), **relations: object) -> pa.Table:
    """Runs a query over relations, Arrow tables or readers of data larger than memory, and returns its rows."""
    connection = duckdb_utc()
    for name, rows in relations.items():
        connection.register(name, rows)
    return connection.execute(sql, list(parameters) or None).to_arrow_table()


def load_extension(connection: DuckDBPyConnection, name: str) -> None:
    """Loads the extension of DuckDB that the package `duckdb-extension-NAME` holds, without a network.

    Raises:
        MissingTool: the package is not installed.
    """
    [path] = package_folder(f"duckdb_extension_{name}").rglob(f"{name}.duckdb_extension")
    connection.execute(f"LOAD {DUCKDB.literal(str(path))}")


def parquet(*places: Path) -> str:
    """Returns a DuckDB SQL relation of the rows in Parquet files, or in folders of Parquet files.

    A parent folder called `region=eu` adds no column, and a folder called `a*` is no pattern.
    """
    files = (str(place).translate(_PATTERN) + "/*.parquet" * place.is_dir() for place in places)
    return f"read_parquet([{DUCKDB.literals(files)}], hive_partitioning = false)"


@functools.cache
def _database() -> DuckDBPyConnection:
    import duckdb

    database = duckdb.connect()
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database
