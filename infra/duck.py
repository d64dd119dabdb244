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
        connection = _database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@functools.cache
def _database() -> DuckDBPyConnection:
    import duckdb

    return duckdb.connect()
