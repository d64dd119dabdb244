"""Checks that a stream's changes and the corrections of the ledger add up to the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.infra.delta.change_feed import naming_what_is_gone
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import query
from twofold.infra.rows.rows import count
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import from_plain_json
from twofold.tables.refresh.row_diff import difference, matching
from twofold_algebra.sql.names import DUCKDB

_VERSION, _CHANGE_TYPE = "_commit_version", "_change_type"


def unexplained_changes(lake: Lake, table: Table) -> int:
    """Counts the rows of the table that differ from the sum of its stream's commits and of batch corrections.

    Writes by other programs are in neither. If the log was cleaned up, only rows changed by the remaining commits are
    checked.

    Raises:
        ChangesGone: a VACUUM removed the changes of remaining commits, so the comparison is impossible.
    """
    newest = lake.version(table.full_name)
    oldest = lake.oldest_commit(table.full_name, -1, newest)
    changed = _last_changes(lake, table, newest, oldest)
    live = lake.open(table.full_name, newest)
    schema = pa.schema(live.schema())
    rows = pa.table(live.scan()).cast(schema)
    if oldest > 0:
        rows = matching(rows, changed, table.primary_key, "SEMI")
    left = changed.filter(pc.invert(pc.field("_gone"))).drop_columns("_gone")
    return count(difference(left, rows, table.primary_key))


def _last_changes(lake: Lake, table: Table, newest: int, oldest: int) -> pa.Table:
    """Returns the last change of each key by commits of the versions `[oldest, newest]`; `_gone`: it was a deletion."""
    name = table.full_name
    schema = pa.schema(lake.open(name, newest).schema())
    commits = list(lake.commits(name, oldest - 1, newest))
    streamed = [c.version for c in commits if c.changes and c.info.get("cause") == "stream"]
    with naming_what_is_gone(name, oldest, newest):
        feed = pa.table(lake.open(name, newest).load_cdf(starting_version=oldest, ending_version=newest))
    corrections = Ledgers(lake).corrections(name, after=oldest - 1, through=newest)
    key, columns = DUCKDB.names(table.primary_key), DUCKDB.names(schema.names)
    rows = query(
        f"""WITH changes AS (
            SELECT {columns}, {_VERSION}::BIGINT AS {_VERSION}, {_CHANGE_TYPE} = 'delete' AS _gone FROM feed
            WHERE {_CHANGE_TYPE} <> 'update_preimage' AND {_VERSION} IN (SELECT version FROM streamed)
            UNION ALL BY NAME FROM corrected
        )
        SELECT {columns}, _gone FROM changes
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {_VERSION} DESC, _gone) = 1""",
        feed=feed,
        streamed=pa.table({"version": pa.array(streamed, pa.int64())}),
        corrected=_changes(corrections, schema),
    )
    return rows.cast(schema.append(pa.field("_gone", pa.bool_())))


def _changes(corrections: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Converts corrections to rows of the table, each with its version and whether it deletes the row."""
    rows = [json.loads(correction["after"] or correction["before"]) for correction in corrections]
    columns = {field.name: _column([row.get(field.name) for row in rows], field.type) for field in schema}
    versions = pa.array([correction["version"] for correction in corrections], pa.int64())
    gone = pa.array([correction["change"] == "delete" for correction in corrections], pa.bool_())
    return pa.table({**columns, _VERSION: versions, "_gone": gone})


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts values of JSON; those of a type that the column had before are cast, as the change feed casts rows."""
    try:
        return pa.array([from_plain_json(value, kind) for value in values], kind)
    except (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError):
        if len(values) > 1:
            return pa.concat_arrays([_column([value], kind) for value in values])
    with suppress(pa.ArrowException):
        return pa.array(values).cast(kind)
    return pa.nulls(1, kind)
