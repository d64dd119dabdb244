"""Views of DuckDB over Delta tables: `domain.table`, and the bare name where that is unique."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from twofold.infra.duckdb_session import load_extension
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import PREFIX, Settings
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from twofold.infra.delta.lake import Lake


MORE_MEMORY = f"{PREFIX}QUERY_MEMORY_MB gives queries more."
_OPENING = {"query", "json_execute_serialized_sql"}
"""Functions that open a table anywhere, or run a text that may."""
_TREE = """SELECT coalesce(json_array_length(tree, '$.statements'), 0), tree ->> '$..function_name'
    FROM (SELECT json_serialize_sql(?) AS tree)"""


def connect(
    file: Path | None = None, *, read_only: bool = False, memory_mb: int = Settings.query_memory_mb
) -> DuckDBPyConnection:
    """Opens DuckDB with times in UTC and its Delta reader, which honours deletion vectors and column mapping.

    Args:
        file: the database; None: one in memory.
        memory_mb: what queries take at most; texts that functions make are not counted by DuckDB.

    Raises:
        MissingTool: the package with DuckDB's Delta reader is not installed.
    """
    import duckdb

    # Two databases that spill into one folder would overwrite each other's files.
    spill = f"{_spill_folder().name}/{hash(file) if file else secrets.token_hex(8)}"
    connection = duckdb.connect(
        str(file or ":memory:"),
        read_only=read_only,
        config={
            "autoinstall_known_extensions": "false",
            "memory_limit": f"{memory_mb}MB",
            "max_temp_directory_size": f"{4 * memory_mb}MB",
            "temp_directory": spill,
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    load_extension(connection, "delta")
    return connection


@functools.cache
def _spill_folder() -> TemporaryDirectory[str]:
    """Makes a folder on a disk that only this user can read, and that is removed when this process ends."""
    return TemporaryDirectory(prefix="twofold-", dir=os.environ.get("TMPDIR", "/var/tmp"))


def confine(connection: DuckDBPyConnection, folders: Sequence[str], files: Sequence[Path] = ()) -> None:
    """Lets queries read these folders and files, and no others, for good."""
    for name, paths in (("allowed_directories", folders), ("allowed_paths", map(str, files))):
        connection.execute(f"SET {name} = [{DUCKDB.literals(paths)}]")
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")


def require_views(connection: DuckDBPyConnection, query: str) -> None:
    """Refuses a query that opens tables by itself: Delta's reader connects to any address, also if it is confined.

    Args:
        query: one statement of the kind `SELECT`.

    Raises:
        BadArgument: it does, or it cannot be read.
    """
    statements, called = connection.execute(_TREE, [query]).fetchall()[0]
    opening = sorted({name for name in called or () if name in _OPENING or name.startswith("delta_")})
    if statements != 1 or opening:
        raise BadArgument(
            f"{', '.join(opening) or 'This statement'}: tables are read only by their names here.",
            hint="FROM domain.table, or at_version('domain.table', number).",
        )


def create_view(connection: DuckDBPyConnection, lake: Lake, full_name: str, version: int | None = None) -> bool:
    """Creates the view of a table's newest rows; of a topic's events only the records, without heartbeats.

    Args:
        version: of the table, whose rows it has for good.

    Returns:
        Whether it is there now: not if the first commit of the table is not finished.
    """
    import duckdb

    domain, name = full_name.split(".", 1)
    view = DUCKDB.name(domain, name)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {DUCKDB.name(domain)}")
    at = "" if version is None else f", version => {version}"
    rows = f"FROM delta_scan({DUCKDB.literal(lake.uri(full_name))}{at})"
    with contextlib.suppress(duckdb.Error):
        connection.execute(f"CREATE VIEW {view} AS {rows}")
        is_of_events = "FROM duckdb_columns() WHERE schema_name = ? AND table_name = ? AND column_name = '_late_by_ms'"
        if connection.execute(is_of_events, [domain, name]).fetchone():
            connection.execute(f"CREATE OR REPLACE VIEW {view} AS {rows} WHERE _offset IS NOT NULL")
        return True
    return False


def create_bare_views(connection: DuckDBPyConnection, names: Collection[str], added: Collection[str]) -> None:
    """Creates views in `main` for the added of all these tables, where the bare name is unique; others are removed."""
    uses = Counter(full_name.split(".", 1)[1] for full_name in names)
    for full_name in added:
        domain, name = full_name.split(".", 1)
        connection.execute(f"DROP VIEW IF EXISTS main.{DUCKDB.name(name)}")
        if uses[name] == 1:
            connection.execute(f"CREATE VIEW main.{DUCKDB.name(name)} AS FROM {DUCKDB.name(domain, name)}")
