"""The first rows that runs corrected, each in a line for people, with a record that caused it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import RunResult
from infra.delta.lake import Lake
from infra.settings import Settings

MOST_ROWS = 5


def with_corrected_rows(settings: Settings, outcomes: Iterable[RunResult]) -> Iterator[RunResult]:
    """The results, with lines about the first rows that each of them changed, by the ledger of corrections."""
    ledgers = Ledgers(Lake(settings))
    for outcome in outcomes:
        lines: list[str] = []
        if outcome.changed and outcome.version_before is not None:
            corrections = ledgers.corrections(outcome.table, outcome.version_before, outcome.version_after)
            rows = [row for row in corrections if row["run"] == outcome.run]
            lines = [row_line(row) for row in rows[:MOST_ROWS]]
            if len(rows) > MOST_ROWS:
                every = f"FROM ledger.corrections WHERE run = '{outcome.run}'"
                lines.append(f'and {len(rows) - MOST_ROWS:,} more: ./twofold sql "{every}"')
        yield replace(outcome, corrected=lines)


def row_line(row: Mapping[str, Any]) -> str:
    """A row of the ledger of corrections in a line: `origin=JFK: flights 3 -> 4, by flights.departures/1@77`."""
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
