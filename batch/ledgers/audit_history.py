"""The last audit of each table, read from the ledger of runs without an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from batch.ledgers.run_result import RUNS
from infra.delta.datafusion_sql import select
from infra.delta.lake import Lake

_COLUMNS = ("table", "cause", "recorded_at", "turn", "turns", "rows", "unexplained")


@dataclass(frozen=True, kw_only=True)
class LastAudit:
    """The newest audit of a table, and what all of them left.

    Attributes:
        turn, of: the share that was looked at: part `turn` of `of`.
        rows: that were looked at.
        unexplained: rows that differed though nothing touched them, by the newest audit of each share; a repair, and an
            audit of all rows, take the place of what was found before.
        all_since: every share was looked at then or later; None while one has not had its turn.
    """

    at: datetime
    turn: int
    of: int
    rows: int
    unexplained: int
    all_since: datetime | None


def last_audits(lake: Lake) -> dict[str, LastAudit]:
    """By table; one that was never audited is not in it."""
    if not lake.exists(RUNS):
        return {}
    told: dict[str, list[Mapping[str, Any]]] = {}
    for row in select(lake.open(RUNS), _COLUMNS, "cause IN ('audit', 'repair')").to_pylist():
        told.setdefault(row["table"], []).append(row)
    audits = {table: _last(sorted(rows, key=lambda row: row["recorded_at"])) for table, rows in told.items()}
    return {table: audit for table, audit in audits.items() if audit}


def _last(runs: Sequence[Mapping[str, Any]]) -> LastAudit | None:
    """The newest of a table's audits among its audits and repairs, which come oldest first."""
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
