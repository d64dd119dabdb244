"""What `./twofold new` writes a test with finds nothing wrong with a table that is right, and a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mutations.test_mutations import repetitions_that_count
from tests.parity import assert_parity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings


def test_a_table_that_follows_another_is_right(spark: SparkSession, settings: Settings) -> None:
    world = assert_parity(spark, settings, "flights.carrier_days")
    assert world.lake.rows("flights.flights") > 0
    assert world.lake.rows("flights.delays_by_hour") == 0, "it is not read"


def test_a_batch_that_counts_what_was_sent_twice_is_found(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    repetitions_that_count(monkeypatch)
    with pytest.raises(AssertionError, match="delays_by_hour"):
        assert_parity(spark, settings, "flights.delays_by_hour")
