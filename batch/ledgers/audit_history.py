"""Reads the last audit of each table from the ledger of runs, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from twofold.batch.ledgers.run_result import RUNS
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLUMNS = ("table", "cause", "recorded_at", "turn", "turns", "rows", "unexplained")


@dataclass(frozen=True, kw_only=True)
class LastAudit:
    """The newest audit of a table, and the state after all audits.

    Attributes:
        turn, of: the audited share: part `turn` of `of`.
        rows: the number of audited rows.
        unexplained: the number of rows that differed without a cause, by the newest audit of each share; a repair, or
            an audit of all rows, replaces earlier findings.
        all_since: every share was audited at this time or later; None if a share was not audited yet.
    """

    at: datetime
    turn: int
    of: int
    rows: int
    unexplained: int
    all_since: datetime | None


def last_audits(lake: Lake, runs: DeltaTable | None = None) -> dict[str, LastAudit]:
    """Returns the last audit by table; a table that was never audited is left out.

    Args:
        runs: the ledger at a version; None: as it is now.
    """
    if runs is None and not lake.exists(RUNS):
        return {}
    told: dict[str, list[Mapping[str, Any]]] = {}
    for row in select(runs or lake.open(RUNS), _COLUMNS, "cause IN ('audit', 'repair')").to_pylist():
        told.setdefault(row["table"], []).append(row)
    audits = {table: _last(sorted(rows, key=lambda row: row["recorded_at"])) for table, rows in told.items()}
    return {table: audit for table, audit in audits.items() if audit}


def _last(runs: Sequence[Mapping[str, Any]]) -> LastAudit | None:
    """Summarizes a table's audits and repairs, given oldest first; None if there was no audit."""
    newest = next((run for run in reversed(runs) if run["cause"] == "audit"), None)
    if newest is None:
        return None
    left: dict[tuple[int, int], int] = {}
    looked: dict[int, datetime] = {}
    for run in runs:
        if run["cause"] == "repair" or run["turns"] == 1:
            left.clear()
        if run["cause"] == "repair":
            left[0, 1] = run["unexplained"]
            continue
        left[run["turn"], run["turns"]] = run["unexplained"]
        if run["turns"] in (1, newest["turns"]):
            turns = range(newest["turns"]) if run["turns"] == 1 else [run["turn"]]
            looked |= dict.fromkeys(turns, run["recorded_at"])
    return LastAudit(
        at=newest["recorded_at"],
        turn=newest["turn"],
        of=newest["turns"],
        rows=newest["rows"],
        unexplained=sum(left.values()),
        all_since=min(looked.values()) if len(looked) == newest["turns"] else None,
    )
