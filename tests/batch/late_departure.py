"""A small world with one departure that is days late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import Registry

TEN = datetime(2013, 3, 5, 10, tzinfo=UTC)
TABLES = ["delays_by_hour", "flights", "carrier_days"]
LATE_OFFSET = 3
LATE_BY_MS = ((5 * 24 * 60) - 40) * 60_000


def departure(number: int, origin: str, minutes: int, delay: int = 0, carrier: str = "UA") -> bytes:
    """A departure so many minutes after ten, as it is in the log."""
    at = TEN + timedelta(minutes=minutes)
    record = {
        "flight_id": f"{carrier}{number}",
        "kind": "departed",
        "carrier": carrier,
        "flight": number,
        "tail_number": None,
        "origin": origin,
        "destination": "BOS",
        "scheduled_at": _stamp(at - timedelta(minutes=delay)),
        "occurred_at": _stamp(at),
        "delay_min": delay,
        "reported_at": _stamp(at),
    }
    return json.dumps(record).encode()


def arrival(number: int, minutes: int, carrier: str = "UA") -> bytes:
    """The landing of a flight so many minutes after ten."""
    at = _stamp(TEN + timedelta(minutes=minutes))
    record = {
        "flight_id": f"{carrier}{number}",
        "carrier": carrier,
        "destination": "BOS",
        "arrived_at": at,
        "delay_min": 0,
        "air_time_min": 50,
        "reported_at": at,
    }
    return json.dumps(record).encode()


def late_departure_world(
    spark: SparkSession, settings: Settings, registry: Registry | None = None, tables: Sequence[str] = TABLES
) -> World:
    """Offsets 0 and 1: two departures of one hour; 2: one that closes it, five days on; 3: a third of that hour.

    Args:
        tables: whose streams take it in.
    """
    world = World(spark, settings, "flights", registry=registry or load())
    days = 5 * 24 * 60
    world.append({"departures": [departure(0, "JFK", 5, 5), departure(1, "JFK", 20, 20)], "arrivals": [arrival(0, 70)]})
    world.append({"departures": [departure(2, "LGA", days, 0, "AA")], "arrivals": [arrival(2, days, "AA")]})
    world.maintain(tables)
    world.append({"departures": [departure(3, "JFK", 40, 35), departure(4, "LGA", days + 10, 0, "AA")]})
    world.maintain(tables)
    return world


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
