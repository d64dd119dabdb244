"""The stream's tables, corrected, equal what an independent engine computes from the same log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import Case, Schedule, cases, schedules
from tests.fuzz.check import FLIGHTS
from tests.fuzz.shrink import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = int(os.environ.get("FUZZ_WORLDS", "2"))
CASES_PER_WORLD = 26

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600 + 120 * WORLDS)]


@given(world=st.lists(cases, min_size=CASES_PER_WORLD, max_size=CASES_PER_WORLD), schedule=schedules)
@settings(
    max_examples=WORLDS,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_after_reconcile_every_table_equals_what_duckdb_says_of_the_log(
    spark: SparkSession, world: list[Case], schedule: Schedule
) -> None:
    assume(len(set(world)) > CASES_PER_WORLD // 2)  # the first world that Hypothesis thinks of is the emptiest
    wrong = told(spark, world, schedule, FLIGHTS)
    assert not wrong, wrong
