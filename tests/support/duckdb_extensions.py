"""DuckDB with one of its extensions, as the packages of that name bring them."""

from __future__ import annotations

import duckdb

from twofold.infra.duckdb_session import load_extension


def with_extension(name: str) -> duckdb.DuckDBPyConnection:
    """A database of its own in which the extension is loaded; no network is needed."""
    connection = duckdb.connect()
    load_extension(connection, name)
    return connection
