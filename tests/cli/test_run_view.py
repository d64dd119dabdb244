"""What commands say of plans and runs: how much there is where the first is shown, and what was looked at."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.plan.plan import Plan, TableChange
from twofold.batch.plan.plan_text import markdown
from twofold.cli.run_view import print_outcomes, print_plan

AT = datetime(2013, 2, 5, tzinfo=UTC)
DAYS: list[dict[str, Any]] = [
    {"day": date(2013, 1, 1) + timedelta(days=n), "inserted": 0, "updated": 4, "deleted": 0} for n in range(35)
]
SAMPLES = [
    {"change": "update", "key": {"flight": n}, "values": {c: [0, 1] for c in ("delay", "late")}} for n in range(20)
]


def a_plan(**summary: object) -> Plan:
    change = TableChange(table="flights.x", cause="backfill", version=1, rows_before=500, updated=140, summary=summary)
    return Plan(id="p-1", cause="backfill", command=["backfill", "x"], created_at=AT, expires_at=AT, changes=[change])


@pytest.mark.parametrize(("whole", "says"), [(False, "8 of 35 days"), (True, "14 of 35 days")])
def test_the_days_that_are_shown_are_so_many_of_all(capsys: pytest.CaptureFixture[str], whole: bool, says: str) -> None:
    print_plan(a_plan(days=DAYS), whole=whole)
    assert [line for line in capsys.readouterr().out.splitlines() if " of 35" in line or "more" in line] == [says]


def test_the_text_for_a_merge_request_counts_all_days() -> None:
    assert markdown(a_plan(days=DAYS * 40)).splitlines()[-1] == "14 of 1,400 days"
    assert markdown(a_plan(days=DAYS[:14])).splitlines()[-1].startswith("| 2013-01-14")


def test_a_row_of_several_columns_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    plan = a_plan(samples=SAMPLES)
    print_plan(plan, whole=False)
    assert "4 of 140 rows" in capsys.readouterr().out.splitlines()
    assert markdown(plan).splitlines()[-1] == "20 of 140 rows"


def test_what_is_taken_back_was_not_compared_with_a_recomputation(capsys: pytest.CaptureFixture[str]) -> None:
    """After the roll-back of a definition that had changed no row."""
    print_outcomes([RunResult(table="plant.hours", cause="rollback", run="rollback-1", scopes=1)], as_json=False)
    printed = capsys.readouterr().out
    assert "Taken back; no row was to be changed." in printed
    assert "recomputation" not in printed
    assert "was right" not in printed
