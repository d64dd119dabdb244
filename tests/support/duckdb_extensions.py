"""DuckDB with one of its extensions, as the packages of that name bring them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb


def with_extension(name: str) -> duckdb.DuckDBPyConnection:
    """A database of its own in which the extension is loaded; no network is needed."""
    spec = find_spec(f"duckdb_extension_{name}")
    assert spec
    assert spec.submodule_search_locations
    file = next(Path(spec.submodule_search_locations[0]).rglob(f"{name}.duckdb_extension"))
    connection = duckdb.connect()
    connection.execute(f"LOAD '{file}'")
    return connection
