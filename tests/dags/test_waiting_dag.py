"""The first example of the documentation: a DAG that goes on once an hour of a table is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.dags.waiting_dags import hourly_and_daily_report


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "hourly_report"}
    exec(compile(hourly_and_daily_report()[0], "hourly_report.py", "exec"), names)
    return names


def closed_hour(example: dict[str, Any], reported: str | None, *closed_before: str | None) -> Any:
    events = [SimpleNamespace(extra={"cause": "stream", "closed_before": instant}) for instant in closed_before]
    events.append(SimpleNamespace(extra={"cause": "late", "changed": 1}))
    instance = SimpleNamespace(xcom_pull=lambda **_: reported)
    return example["closed_hour"].function(triggering_asset_events={example["DELAYS"]: events}, ti=instance)


def test_the_newest_hour_that_is_closed_is_reported_once(example: dict[str, Any]) -> None:
    events = ("2013-01-05T14:20:00+00:00", "2013-01-05T15:05:00+00:00")
    assert closed_hour(example, None, *events) == "2013-01-05T14:00:00+00:00"
    assert closed_hour(example, "2013-01-05T13:00:00+00:00", *events) == "2013-01-05T14:00:00+00:00"
    assert closed_hour(example, "2013-01-05T14:00:00+00:00", *events) is None
    assert closed_hour(example, None, None) is None


def test_its_asset_is_the_one_of_the_table(example: dict[str, Any]) -> None:
    from twofold.dags.operators.assets import described_asset, table_asset
    from twofold.tables.declare.registry import load

    table = load().find_table("flights.delays_by_hour")
    described = described_asset(table)
    assert example["DELAYS"] == table_asset(table.full_name)
    assert (described.name, described.uri) == (example["DELAYS"].name, example["DELAYS"].uri)
    assert described.extra["description"] == "Departure delays by origin airport and hour."
    assert described.extra["columns"]["mean_delay_min"].startswith("mean delay against the schedule")
