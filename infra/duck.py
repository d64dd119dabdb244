"""DuckDB in this process, for rows that are few."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_lock = threading.Lock()


def duckdb_utc() -> DuckDBPyConnection:
    """A connection that reads and shows instants in UTC; what is registered with it is its own.

    All are of one database in memory, which costs 11 ms of CPU to make: tables of theirs must be temporary.
    """
    with _lock:
        return _database().cursor()


@functools.cache
def _database() -> DuckDBPyConnection:
    import duckdb

    database = duckdb.connect()
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database
