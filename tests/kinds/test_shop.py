"""The kinds of table that flights do not need: a shop's stream, corrected, equals DuckDB's answer from the log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tables.registry import load
from tests.fuzz.cases import Schedule
from tests.fuzz.check import Subject
from tests.fuzz.shrink import told
from tests.kinds.cases import Case, cases, log_of, owners, schedules
from tests.kinds.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = max(1, int(os.environ.get("FUZZ_WORLDS", "2")) // 2)
CASES_PER_WORLD = 26
SHOP = Subject(
    domain="shop",
    registry=load(Path(__file__).parent / "declared"),
    log_of=log_of,
    owners=owners,
    oracle=Oracle,
)

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
    assume(len(set(world)) > CASES_PER_WORLD // 2)
    wrong = told(spark, world, schedule, SHOP)
    assert not wrong, wrong
