"""Streams and reconciles that are killed at any point leave the same tables and the same ledger as if they were not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from infra.settings import Settings
from tables.declare.registry import load
from tests.changelog import assert_ledger_explains
from tests.chaos.final_state import assert_each_record_is_there_once, assert_tables_are_right
from tests.chaos.worker import STEPS, STEPS_PER_TABLE, work
from tests.harness.tiers import this_run
from tests.support.crashes import Obstructor, run_until_killed
from tests.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = this_run.kills or 3
REAL = this_run.kills
"""Of the kills so many end a process; after the others this one goes on, which spares the start of a JVM."""
SEED = this_run.seed
FEW = ["flights.delays_by_hour", "flights.flights", "flights.carrier_days", "flights.plane_days"]
"""Windows, a join, what follows a table, sessions: enough for a short run; a long one takes every table."""

pytestmark = [
    pytest.mark.prove,
    pytest.mark.kills,
    pytest.mark.platform,
    pytest.mark.spark,
    pytest.mark.timeout(1_200 + 120 * KILLS),
]


def test_tables_and_ledger_are_right_after_kills_at_random_points(spark: SparkSession, settings: Settings) -> None:
    """It works through a log with four tables after each kill; `make chaos` takes every table, and kills processes."""
    settings = replace(settings, max_files=1)
    tables = [t.full_name for t in load().in_order("flights") if REAL or t.full_name in FEW]
    for leg in range(KILLS):
        if leg < REAL:
            run_until_killed(settings, "tests.chaos.worker", str(leg), str(SEED + leg), *tables)
        else:
            with Obstructor(SEED + leg, STEPS_PER_TABLE * len(tables)).obstructing(STEPS):
                work(World(spark, settings), leg, tables)
    world = World(spark, settings)
    work(world, KILLS, tables)
    assert [o for o in world.reconcile(tables, verify=True) if o.unexplained] == []
    assert [o for o in world.reconcile(tables) if o.changed or o.files_written] == []
    assert_each_record_is_there_once(world, KILLS + 1)
    assert_tables_are_right(world, tables, KILLS + 1)
    assert_ledger_explains(world, tables)
