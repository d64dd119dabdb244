"""Random declarations are refused for a true reason, or hold what plain Spark gives for all rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from tests.fuzz.declaration_cases import alarms, declarations, readings
from tests.fuzz.declaration_check import Rows, faults_of
from tests.fuzz.fuzz_worlds import drawn
from tests.harness.tiers import this_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = this_run.worlds or 1
AT_ONCE = 30
rows = st.builds(
    Rows, readings=st.lists(readings, min_size=8, max_size=16), alarms=st.lists(alarms, min_size=2, max_size=4)
)


@pytest.mark.fuzz
def test_what_is_accepted_holds_what_plain_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    declared, arriving = drawn(declarations, AT_ONCE * WORLDS), drawn(rows, WORLDS)
    faults: list[str] = []
    counted: Counter[str] = Counter()
    for number, one in enumerate(arriving):
        found, counts = faults_of(spark, tmp_path / str(number), declared[number::WORLDS], one)
        faults += found
        counted.update(counts)
    print(counted)
    assert not faults, "\n\n".join(faults)
