"""Contradicting records stop no table: the later departure wins in stream and batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.changelog import assert_ledger_explains
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

START = datetime(2013, 3, 1, tzinfo=UTC)
FLIGHTS, WEATHER, DAYS = "flights.flights", "flights.flights_in_weather", "flights.carrier_days"


def at(hour: float) -> str:
    return (START + timedelta(hours=hour)).isoformat()


def left(flight: str, hour: float) -> bytes:
    record = {
        "flight_id": flight,
        "kind": "departed",
        "carrier": "ZZ",
        "flight": 1,
        "tail_number": None,
        "origin": "JFK",
        "destination": "BOS",
        "scheduled_at": at(0),
        "occurred_at": at(hour),
        "delay_min": 0,
        "reported_at": at(hour),
    }
    return json.dumps(record).encode()


def landed(flight: str, hour: float) -> bytes:
    record = {
        "flight_id": flight,
        "carrier": "ZZ",
        "destination": "BOS",
        "arrived_at": at(hour),
        "delay_min": 0,
        "air_time_min": 60,
        "reported_at": at(hour),
    }
    return json.dumps(record).encode()


def test_of_two_departures_the_later_one_counts_in_any_order(spark: SparkSession, settings: Settings) -> None:
    """Six times records come, three tables are maintained and reconciled; half a minute where the machine is busy."""
    world = World(spark, settings, "flights")
    departures: list[list[bytes]] = [
        [
            *(left("together", 1), left("together", 2), left("apart", 1), left("backwards", 2), left("dropped", 1)),
            *(left("long known", 2), left("days apart", 1), left("days apart, late", 1), left("days, backwards", 40)),
            left("landed twice", 1),
        ],
        [left("apart", 2), left("backwards", 1), left("clock", 12)],
        [left("dropped", 2), left("long known", 1), left("clock at 30", 30)],
        [left("days apart", 40), left("clock at 60", 60)],
        [left("days apart, late", 40), left("clock at 90", 90)],
        [left("days, backwards", 1), left("clock at 120", 120)],
    ]
    arrivals = [[landed("landed twice", 3), landed("landed twice", 4)]]
    arrivals += [[landed(f"clock at {hour}", hour)] for hour in (12, 30, 60, 90, 120)]
    names = [FLIGHTS, WEATHER, DAYS]
    for number, (left_, landed_) in enumerate(zip(departures, arrivals, strict=True)):
        world.append({"flights.departures": left_, "flights.arrivals": landed_})
        world.maintain(names)
        verify = number in (2, 5)  # of some flights one row is closed at 2, and the other open
        assert [o for o in world.reconcile(names, verify=verify) if o.unexplained] == []

    stands = {"together": 2, "apart": 2, "backwards": 2, "dropped": 2, "long known": 2, "landed twice": 1}
    stands |= {"days apart": 40, "days apart, late": 40, "days, backwards": 40}
    for name in (FLIGHTS, WEATHER):
        rows = {row["flight_id"]: row for row in world.rows(name).to_pylist() if "clock" not in row["flight_id"]}
        assert {flight: row["departed_at"].isoformat() for flight, row in rows.items()} == {
            flight: at(hour) for flight, hour in stands.items()
        }, name
    [twice] = [row for row in world.rows(FLIGHTS).to_pylist() if row["flight_id"] == "landed twice"]
    assert twice["arrived_at"].isoformat() == at(4)
    assert [o for o in world.reconcile(names) if o.changed or o.files_written] == []
    assert_ledger_explains(world, names)
