"""Finds changes of a captured table that its events lack."""

from __future__ import annotations

from infra.duckdb_session import query
from tables.engine.delta.lake import QUARANTINE, Lake
from tables.engine.events.metadata_columns import OFFSET

_NEWEST = f"""
    SELECT
        min({OFFSET}) AS "begin",
        min(cdc_commit_lsn) FILTER (cdc_op = 'snapshot') AS first,
        max(cdc_commit_lsn) FILTER (cdc_op = 'snapshot') AS last
    FROM rows GROUP BY cdc_snapshot ORDER BY cdc_snapshot DESC LIMIT 1
"""


def changes_fault(lake: Lake, topic: str) -> str:
    """Why tables may differ from the captured one though all changes arrive; empty: they do not.

    A change that was refused since the newest snapshot began is in quarantine. A snapshot that was interrupted begins
    again, of a later moment, and no change says that a row is deleted which was deleted between the two. Of a column
    that was renamed no change says so either.
    """
    if not lake.exists(topic):
        return ""
    rows = lake.open(topic).scan(
        columns=["cdc_op", "cdc_snapshot", "cdc_commit_lsn", OFFSET], predicate=f"cdc_lsn = 0 AND {OFFSET} IS NOT NULL"
    )
    newest = [row.values() for row in query(_NEWEST, rows=rows).to_pylist()]
    [(begin, first, last)] = newest or [(0, None, None)]
    refused = 0
    if lake.exists(f"{topic}{QUARANTINE}"):
        since = lake.open(f"{topic}{QUARANTINE}").scan(columns=[OFFSET], predicate=f"{OFFSET} >= {begin}")
        refused = query("SELECT count(*) AS n FROM rows", rows=since)["n"][0].as_py()
    if refused:
        return (
            f"its tables lack changes that were refused: {refused:,}, with their reasons in {topic}{QUARANTINE} "
            "(`./twofold sql` shows them)"
        )
    if first != last:
        return (
            f"its snapshot of LSN {first} was interrupted and begun again at {last}: rows that were deleted in between "
            "may still be in its tables"
        )
    lacking = lake.open(topic).scan(
        columns=["cdc_missing"], predicate=f"cdc_missing IS NOT NULL AND {OFFSET} >= {begin}"
    )
    missing = query("SELECT DISTINCT cdc_missing FROM rows ORDER BY ALL", rows=lacking)["cdc_missing"].to_pylist()
    if missing:
        return (
            f"its table has no column {', '.join(missing)}, which is declared: tables keep the last values; "
            "declare the columns that it has"
        )
    return ""
