"""Random declarations are refused for a true reason, or hold what plain Spark gives for all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from tests.fuzz.declaration_cases import alarms, declarations, readings
from tests.fuzz.declaration_check import Rows, faults_of, untrue_refusals
from tests.fuzz.fuzz_worlds import WORLDS, distinct_values, timeout_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = 50
rows = st.builds(
    Rows, readings=st.lists(readings, min_size=8, max_size=16), alarms=st.lists(alarms, min_size=2, max_size=4)
).filter(lambda one: one.changed > 2)


@pytest.mark.worlds
def test_what_is_refused_is_refused_for_a_true_reason(tmp_path: Path) -> None:
    faults = untrue_refusals(tmp_path, distinct_values(declarations, AT_ONCE * WORLDS))
    assert not faults, "\n\n".join(faults)


@pytest.mark.fuzz
@pytest.mark.timeout(timeout_s(WORLDS))
def test_what_is_accepted_holds_what_plain_spark_gives(interpreted: SparkSession, tmp_path: Path) -> None:
    """Fifty declarations a world, of which Spark runs twenty: half a minute."""
    declared, faults, accepted = distinct_values(declarations, AT_ONCE * WORLDS), list[str](), 0
    for number, arriving in enumerate(distinct_values(rows, WORLDS)):
        found, counts = faults_of(interpreted, tmp_path / str(number), declared[number::WORLDS], arriving)
        faults += found
        accepted += counts["accepted"]
    assert not faults, "\n\n".join(faults)
    assert accepted > AT_ONCE * WORLDS // 5
