"""The stream's tables, corrected, equal what an independent engine computes from the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.fuzz_cases import Case, Schedule, cases, schedules
from tests.fuzz.fuzz_check import FLIGHTS
from tests.fuzz.fuzz_worlds import WORLDS, over_worlds, timeout_s
from tests.fuzz.shrink import failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.worlds, pytest.mark.timeout(timeout_s(WORLDS))]


@over_worlds(cases, schedules, WORLDS)
def test_after_reconcile_every_table_equals_what_duckdb_says_of_the_log(
    spark: SparkSession, world: list[Case], schedule: Schedule
) -> None:
    """A world of 26 cases goes through eleven tables, with restarts and reconciles: half a minute."""
    wrong = failure_of(spark, world, schedule, FLIGHTS)
    assert not wrong, wrong
