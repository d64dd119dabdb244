"""DuckDB sessions in this process, for small sets of rows."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from infra.sql.names import DUCKDB

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_lock = threading.Lock()
_PATTERN = str.maketrans({sign: f"[{sign}]" for sign in "*?["})


def duckdb_utc() -> DuckDBPyConnection:
    """A connection that reads and shows instants in UTC; what is registered with it is its own.

    All are of one database in memory, which costs 11 ms of CPU to make: tables of theirs must be temporary.
    """
    with _lock:
        connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def query(sql: str, parameters: Sequence[object] = (), **relations: object) -> pa.Table:
    """The rows that a query gives of these relations: Arrow tables, or readers of what need not fit into memory."""
    connection = duckdb_utc()
    for name, rows in relations.items():
        connection.register(name, rows)
    return connection.execute(sql, list(parameters) or None).to_arrow_table()


def parquet(*places: Path) -> str:
    """Returns the relation of DuckDB's SQL with the rows of Parquet files, or of folders of them, as they are.

    A folder above them that is called `region=eu` gives no column, and one that is called `a*` stands for itself.
    """
    files = (str(place).translate(_PATTERN) + "/*.parquet" * place.is_dir() for place in places)
    return f"read_parquet([{DUCKDB.literals(files)}], hive_partitioning = false)"


@functools.cache
def _database() -> DuckDBPyConnection:
    import duckdb

    return duckdb.connect()
