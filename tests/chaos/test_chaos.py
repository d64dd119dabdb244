"""Streams and reconciles that are killed at any point leave the same tables and the same ledger as if they were not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.changelog import assert_ledger_explains
from tests.chaos.final_state import assert_each_record_is_there_once, assert_tables_are_right
from tests.chaos.worker import work
from tests.harness.tiers import this_run
from tests.support.crashes import run_until_killed
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = this_run.kills or 1
SEED = this_run.seed

pytestmark = [
    pytest.mark.prove,
    pytest.mark.kills,
    pytest.mark.platform,
    pytest.mark.spark,
    pytest.mark.timeout(1_200 + 120 * KILLS),
]


def test_tables_and_ledger_are_right_after_kills_at_random_points(spark: SparkSession, settings: Settings) -> None:
    """Each life starts a JVM, and works through the log with every table."""
    settings = replace(settings, max_files=1)
    tables = [t.full_name for t in load().in_order("flights")]
    for leg in range(KILLS):
        run_until_killed(settings, "tests.chaos.worker", str(leg), str(SEED + leg), *tables)
    world = World(spark, settings, "flights")
    work(world, KILLS, tables)
    assert [o for o in world.reconcile(tables, verify=True) if o.unexplained] == []
    assert [o for o in world.reconcile(tables) if o.changed or o.files_written] == []
    assert_each_record_is_there_once(world, KILLS + 1)
    assert_tables_are_right(world, tables, KILLS + 1)
    assert_ledger_explains(world, tables)
