"""A commit that a stream takes in parts hides no late record from reconcile."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.batch.test_parity import Flight, log_of
from tests.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings

pytestmark = pytest.mark.spark

EARLY = Flight("EWR", "UA", 0, 5, None, 0, 0, None)
LATER = [Flight("EWR", "UA", leaves, 5, None, 0, 0, None) for leaves in (1_200, 1_300)]


def test_rows_that_are_late_by_others_of_their_own_commit_are_corrected(
    spark: SparkSession, settings: Settings
) -> None:
    world = World(spark, replace(settings, max_files=1))
    world.append_in_files("departures", [value for _, value in log_of([EARLY, *LATER], [])[:3]], by="occurred_at")
    assert world.rows("flights.departures").num_rows == 3

    world.maintain(["delays_by_hour"])
    closing = [value for _, value in log_of([], [])]
    world.append({"departures": closing})
    world.maintain(["delays_by_hour"])
    name = "flights.delays_by_hour"
    missed = hours(world.rows(name))
    assert datetime(2013, 3, 9, 12, tzinfo=UTC) not in missed, "the stream took the commit whole: nothing is proven"

    outcomes = world.reconcile(["delays_by_hour"])
    assert [(o.inserted, o.unexplained) for o in outcomes if o.table == name] == [(1, 0)]
    assert hours(world.rows(name)) == missed | {datetime(2013, 3, 9, 12, tzinfo=UTC)}
    assert [o.changed for o in world.reconcile(["delays_by_hour"])] == [0]


def hours(rows: pa.Table) -> set[datetime]:
    return set(rows["hour"].to_pylist())
