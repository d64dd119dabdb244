"""Rows of a Delta table that changed between two versions, and those that a stream missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import query
from twofold.infra.errors import ChangesGone, ChangesUnread
from twofold_algebra.sql.names import DATAFUSION, DUCKDB

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CHANGE_TYPE = "_change_type"
_GONE = ("not found", "No such file", "Expected contiguous commit files", "Invalid table version")
"""Messages of delta-rs if a file of the log or of the change feed is missing."""


def changed_rows(
    lake: Lake, name: str, after: int, through: int, columns: Sequence[str], table: DeltaTable | None = None
) -> pa.Table:
    """Reads all rows, old and new, that commits in `(after, through]` inserted, updated or deleted.

    Args:
        table: the opened table, at `through` or later; None: open it, which reads its log.

    Returns:
        The `columns` that the table has, and `_change_type`, one row per old or new row. The number of rows is right
        even if the table has none of the columns, although Arrow loses it for a table without columns.

    Raises:
        ChangesGone: commits or data files of that time were cleaned up.
        ChangesUnread: the commits changed rows, and the change feed has none of them.
    """
    table = table or lake.open(name)
    schema = columns_in(table, columns).append(pa.field(_CHANGE_TYPE, pa.string()))
    if after >= through:
        return schema.empty_table()
    rows = changes_between(table, name, after + 1, through, schema)
    if not len(rows):
        _require_unchanged(lake, name, after + 1, through)
    return rows


def _require_unchanged(lake: Lake, name: str, first: int, last: int) -> None:
    """Refuses commits that changed rows, by the log."""
    if changed := sum(c.rows_changed for c in lake.commits(name, first - 1, last) if c.changes):
        raise ChangesUnread(
            f"{name}: the commits {first} to {last} changed {changed:,} rows, and 0 of them were read.",
            hint=f"`{COMMAND} show {name}` lists its commits; `{COMMAND} backfill TABLE` recomputes what reads them.",
            table=name,
        )


def side_of(row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Splits a row of a change feed into its side, `before` or `after`, and the table's own columns."""
    side = "before" if is_old(row) else "after"
    return side, {column: value for column, value in row.items() if not column.startswith(("_commit", "_change"))}


def is_old(row: Mapping[str, Any]) -> bool:
    """Whether a row of a change feed is one that was replaced or removed."""
    return row[_CHANGE_TYPE] in ("update_preimage", "delete")


def sides_of(lake: Lake, name: str, versions: Sequence[int], key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Returns the rows that these commits changed: as before the first commit, and as after the last one.

    Raises:
        ChangesGone: the changes can no longer be read.
        ChangesUnread: as `changed_rows`.
    """
    schema = pa.schema(lake.open(name, max(versions)).schema())
    feed = schema.append(pa.field(_CHANGE_TYPE, pa.string())).append(pa.field("_commit_version", pa.int64()))
    with naming_what_is_gone(name, min(versions), max(versions)):
        rows = pa.table(lake.open(name).load_cdf(min(versions), max(versions)))
    if not len(rows):
        _require_unchanged(lake, name, min(versions), max(versions))
    rows = rows.select(feed.names).cast(feed)
    columns, of_key = DUCKDB.names(schema.names), f"(_commit_version) OVER (PARTITION BY {DUCKDB.names(key)})"
    edges = f"min{of_key} AS _first, max{of_key} AS _last"
    changed = f"FROM feed WHERE _commit_version IN ({', '.join(map(str, versions))})"

    def side(kinds: str, at: str) -> pa.Table:
        found = query(
            f"SELECT {columns} FROM (SELECT *, {edges} {changed}) "
            f"WHERE {_CHANGE_TYPE} IN ({kinds}) AND _commit_version = {at}",
            feed=rows,
        )
        return found.cast(schema)

    return side("'update_preimage', 'delete'", "_first"), side("'update_postimage', 'insert'", "_last")


def changes_between(table: DeltaTable, name: str, first: int, last: int, schema: pa.Schema) -> pa.Table:
    """Reads the change feed of these versions, with the columns of the schema."""
    # Names are read as SQL: unquoted, `Zone` is another column, `order` an error, and `null` a value.
    names = list(map(DATAFUSION.name, schema.names))
    with naming_what_is_gone(name, first, last):
        feed = table.load_cdf(starting_version=first, ending_version=last, columns=names)
        return pa.table(feed).select(schema.names).cast(schema)


@contextmanager
def naming_what_is_gone(name: str, first: int, last: int) -> Iterator[None]:
    """Turns any engine's missing-file error into `ChangesGone`.

    Raises:
        ChangesGone: a `FileNotFoundError`, too.
    """
    try:
        yield
    except Exception as error:
        if not any(sign in str(error) for sign in _GONE):
            raise
        raise ChangesGone(
            f"{name}: what the commits {first} to {last} changed cannot be read: files of them were removed, by "
            "retention or a VACUUM. The history of its rows is not known that far back.",
            hint="The rows themselves are there, and a reconcile corrects them; what was removed cannot come back.",
            table=name,
        ) from error


def columns_in(table: DeltaTable, columns: Sequence[str]) -> pa.Schema:
    """Returns the schema of the given columns that the table has."""
    return pa.schema([f for f in pa.schema(table.schema()) if f.name in columns])
