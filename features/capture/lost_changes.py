"""Finds changes of a captured table that are missing from its events."""

from __future__ import annotations

import pyarrow as pa

from twofold.features.capture.debezium_decoder import snapshot_of
from twofold.infra import COMMAND
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.tables.declare.metadata_columns import OFFSET

_NEWEST = f"""
    SELECT
        cdc_snapshot AS number,
        coalesce(lead(min({OFFSET})) OVER (ORDER BY cdc_snapshot DESC), 0) AS since,
        min(cdc_commit_lsn) FILTER (cdc_op = 'snapshot') AS first,
        max(cdc_commit_lsn) FILTER (cdc_op = 'snapshot') AS last
    FROM rows GROUP BY cdc_snapshot ORDER BY cdc_snapshot DESC LIMIT 1
"""
_OF_SNAPSHOTS = f"cdc_lsn = 0 AND cdc_snapshot > 0 AND {OFFSET} IS NOT NULL"


def changes_fault(lake: Lake, topic: str) -> str:
    """Explains why tables may differ from the captured one although all changes arrive; empty if they do not.

    The reasons are a refused change, now in quarantine, of the newest snapshot or later; an interrupted snapshot, which
    begins again later, so that rows deleted in between have no change; and a renamed column, for which there is no
    change.
    """
    if not lake.exists(topic):
        return ""
    rows = lake.open(topic).scan(columns=["cdc_op", "cdc_snapshot", "cdc_commit_lsn", OFFSET], predicate=_OF_SNAPSHOTS)
    newest = [row.values() for row in query(_NEWEST, rows=rows).to_pylist()]
    [(number, since, first, last)] = newest or [(0, 0, None, None)]
    refused = len(refused_changes(lake, topic, number, since))
    if refused:
        return (
            f"its tables lack changes that were refused: {refused:,}, with their reasons in {topic}{QUARANTINE} "
            f"(`{COMMAND} sql` shows them)"
        )
    if first != last:
        return (
            f"its snapshot of LSN {first} was interrupted and begun again at {last}: rows that were deleted in between "
            "may still be in its tables"
        )
    lacking = lake.open(topic).scan(
        columns=["cdc_missing"], predicate=f"cdc_missing IS NOT NULL AND cdc_snapshot >= {number}"
    )
    missing = query("SELECT DISTINCT cdc_missing FROM rows ORDER BY ALL", rows=lacking)["cdc_missing"].to_pylist()
    if missing:
        return (
            f"its table has no column {', '.join(missing)}, which is declared: tables keep the last values; "
            "declare the columns that it has"
        )
    return ""


def refused_changes(lake: Lake, topic: str, snapshot: int, since: int = 0) -> list[bytes | None]:
    """Returns the quarantined values of changes since a snapshot, and of those whose snapshot cannot be read.

    Args:
        since: an offset before all of them.
    """
    if not lake.exists(f"{topic}{QUARANTINE}"):
        return []
    quarantined = pa.table(lake.open(f"{topic}{QUARANTINE}").scan(columns=["value"], predicate=f"{OFFSET} >= {since}"))
    values: list[bytes | None] = quarantined["value"].to_pylist()
    return [value for value in values if (snapshot_of(value) or snapshot) >= snapshot]
