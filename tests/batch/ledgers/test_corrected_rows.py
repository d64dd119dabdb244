"""A corrected row is a line: its key, what changed, and a record that caused it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twofold.batch.ledgers.corrected_rows import days_of, row_line

CAUSE = {"source": "flights.departures", "partition": 1, "offset": 77, "late_by_ms": 5}
BEFORE = {"origin": "JFK", "hour": "2013-01-01T10:00:00Z", "flights": 3, "mean": 1.5}


def row(change: str, before: object, after: object, *evidence: dict[str, Any]) -> dict[str, Any]:
    key = json.dumps({"origin": "JFK", "hour": "2013-01-01T10:00:00Z"})
    texts = [None if value is None else json.dumps(value) for value in (before, after)]
    return {"key": key, "change": change, "before": texts[0], "after": texts[1], "evidence": list(evidence)}


@pytest.mark.parametrize(
    ("of", "line"),
    [
        (row("update", BEFORE, {**BEFORE, "flights": 4}, CAUSE, CAUSE), "flights 3 -> 4, by flights.departures/1@77"),
        (row("update", BEFORE, {**BEFORE, "mean": 2 / 3, "flights": 0}), "flights 3 -> 0, mean 1.5 -> 0.666667"),
        (row("insert", None, BEFORE, {**CAUSE, "offset": None}), "insert"),
        (row("delete", BEFORE, None, CAUSE), "delete, by flights.departures/1@77"),
    ],
)
def test_a_row_is_a_line(of: dict[str, Any], line: str) -> None:
    assert row_line(of) == f"origin=JFK hour=2013-01-01T10:00:00Z: {line}"


def test_the_days_are_those_of_rows_as_they_were_and_as_they_are() -> None:
    moved = row("update", {**BEFORE, "hour": "2012-12-31T23:00:00Z"}, BEFORE)
    undated = row("insert", None, {**BEFORE, "hour": None})
    assert days_of([moved, undated, row("delete", BEFORE, None)], "hour") == ["2012-12-31", "2013-01-01"]
    assert days_of([moved], None) == []
