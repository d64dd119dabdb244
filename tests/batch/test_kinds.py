"""Every kind of table: its stream, corrected, equals its recomputation, and both equal DuckDB's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.oracle import Oracle
from tests.parity import assert_parity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

KINDS = [
    "flights.busiest_routes",
    "flights.plane_days",
    "flights.flights_in_weather",
    "flights.delay_trend",
    "flights.missed_turnarounds",
    "flights.airborne_now",
    "flights.distinct_planes",
]


def test_each_kind_of_table_equals_its_recomputation_once_it_is_reconciled(
    spark: SparkSession, settings: Settings
) -> None:
    world = assert_parity(spark, settings, *KINDS)
    assert Oracle.misnamed(world) == []
