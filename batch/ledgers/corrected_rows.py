"""Describes the first rows that runs corrected, a line each for people, with a record that caused it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RunResult
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold_algebra.sql.names import DUCKDB

MOST_ROWS = 5


def with_corrected_rows(settings: Settings, outcomes: Sequence[RunResult]) -> list[RunResult]:
    """Adds to each result, from the ledger, the days that it changed and lines about its first changed rows."""
    if not any(outcome.changed for outcome in outcomes):
        return list(outcomes)
    ledgers, tables = Ledgers(Lake(settings)), load().tables
    return [_with_rows(ledgers, tables[outcome.table].event_time, outcome) for outcome in outcomes]


def _with_rows(ledgers: Ledgers, event_time: str | None, outcome: RunResult) -> RunResult:
    if not outcome.changed or outcome.version_before is None:
        return outcome
    corrections = ledgers.corrections(outcome.table, outcome.version_before, outcome.version_after)
    rows = [row for row in corrections if row["run"] == outcome.run]
    lines = [row_line(row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        every = f"FROM ledger.corrections WHERE run = {DUCKDB.literal(outcome.run)}"
        lines.append(f'and {len(rows) - MOST_ROWS:,} more: {COMMAND} sql "{every}"')
    return replace(outcome, corrected=lines, days=days_of(rows, event_time))


def days_of(rows: Iterable[Mapping[str, Any]], event_time: str | None) -> list[str]:
    """Returns the days in UTC, like `2013-01-05`, of the old and new rows of corrections."""
    sides = (json.loads(row[side]) for row in rows for side in ("before", "after") if row[side] and event_time)
    return sorted({str(side[event_time])[:10] for side in sides if side.get(event_time)})


def row_line(row: Mapping[str, Any]) -> str:
    """Formats a row of the ledger of corrections: `origin=JFK: flights 3 -> 4, by flights.departures/1@77`."""
    key = " ".join(f"{name}={value}" for name, value in json.loads(row["key"]).items())
    change = row["change"]
    if change == "update":
        before, after = json.loads(row["before"]), json.loads(row["after"])
        differing = (name for name in after if before.get(name) != after[name])
        change = ", ".join(f"{name} {_shown(before.get(name))} -> {_shown(after[name])}" for name in differing)
    causes = [cause for cause in row["evidence"] or () if cause["offset"] is not None]
    by = "".join(f", by {cause['source']}/{cause['partition']}@{cause['offset']}" for cause in causes[:1])
    return f"{key}: {change}{by}"


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
