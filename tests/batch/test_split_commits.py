"""A commit that a stream reads in parts hides no late record from reconcile."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from twofold.batch.audit.completeness import certify
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

NOON = datetime(2013, 3, 9, 12, tzinfo=UTC)
EARLY, *LATER = 0, 1_200, 1_300
DAYS_LATER = 20_000


def departure(minute: int) -> bytes:
    """A flight that leaves so many minutes after noon."""
    at = f"{NOON + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}"
    record = {
        "flight_id": f"UA{minute}",
        "kind": "departed",
        "carrier": "UA",
        "flight": 1,
        "tail_number": None,
        "origin": "EWR",
        "destination": "BOS",
        "scheduled_at": at,
        "occurred_at": at,
        "delay_min": 5,
        "reported_at": at,
    }
    return json.dumps(record).encode()


def test_rows_that_are_late_by_others_of_their_own_commit_are_corrected(
    spark: SparkSession, settings: Settings
) -> None:
    world = World(spark, replace(settings, max_files=1), "flights")
    world.maintain(["delays_by_hour"])  # of what is there when a stream begins nothing is late
    world.append_in_files("departures", [departure(minute) for minute in (EARLY, *LATER)], by="occurred_at")
    assert world.rows("flights.departures").num_rows == 3

    world.maintain(["delays_by_hour"])
    table = world.registry.find_table("delays_by_hour")
    name = table.full_name
    commits = list(world.lake.commits(name, 0, world.lake.version(name)))
    in_part = [certify(world.lake, world.registry, table, c.version) for c in commits if "parts" in c.info]
    assert [[t.records for t in one.topics] for one in in_part] == [[0]] * len(in_part) != []

    world.append({"departures": [departure(DAYS_LATER)]})
    world.maintain(["delays_by_hour"])
    missed = hours(world.rows(name))
    assert NOON not in missed, "the stream took the commit whole: nothing is proven"

    assert [o.inserted for o in world.reconcile(["delays_by_hour"])] == [1]
    assert hours(world.rows(name)) == missed | {NOON}
    assert [o.changed for o in world.reconcile(["delays_by_hour"])] == [0]


def hours(rows: pa.Table) -> set[datetime]:
    return set(rows["hour"].to_pylist())
