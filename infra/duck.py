"""DuckDB in this process, for rows that are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def duckdb_utc() -> DuckDBPyConnection:
    """A connection of its own that reads and shows instants in UTC."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection
