"""The sketches of days, merged, answer for all of the days."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.registry import load
from twofold.tables.refresh.derived_rows import derive
from twofold.tables.refresh.open_platform import ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FLIGHTS = (
    "flight_id string, carrier string, tail_number string, destination string, departed_at timestamp, "
    "departure_delay_min int"
)
MONDAY = datetime(2013, 1, 7, 12, tzinfo=UTC)
_, _, SECTION = (ROOT / "docs" / "how-to" / "kinds-of-tables.md").read_text("utf-8").partition("\n## Sketches\n")
QUERIES = re.findall(r"^```sql\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def stored(flights: DataFrame, lake: Lake) -> DataFrame:
    """The table `distinct_planes` of these flights, as a platform keeps it."""
    spark, registry = flights.sparkSession, load()
    ensure_domain(spark, lake, registry, "flights")
    days = derive(registry.find_table("distinct_planes"), {"flights": flights})
    stamp = CommitTag(app="test", version=0, info={})
    Writer(lake, "flights.distinct_planes", spark).append(days.toArrow(), stamp)
    return lake.frame(spark, "flights.distinct_planes")


def test_sketches_merge_over_days_as_the_page_shows(spark: SparkSession, lake: Lake) -> None:
    flights = [
        (f"UA{day}{n}", "UA", f"N{n + day}", f"D{min(n % 5, n % 3)}", MONDAY + timedelta(days=day, minutes=n), n + day)
        for day in range(7)
        for n in range(60)
    ]
    days = stored(spark.createDataFrame(flights, FLIGHTS), lake)
    days.createOrReplaceTempView("distinct_planes")
    delays = sorted(delay for *_, delay in flights)
    [row] = spark.sql(QUERIES[0]).collect()
    most = row.asDict().pop("most_flown")
    assert (row["carrier"], row["planes"], row["p90_delay_min"]) == ("UA", 66, delays[-(-len(delays) * 9 // 10) - 1])
    assert [(flown["item"], flown["count"]) for flown in most] == [("D0", 196), ("D1", 140), ("D2", 84)]
    assert days.where(f"day = DATE '{date(2013, 1, 7)}'").select("planes").collect()[0][0] == 60


def test_the_planes_of_two_days_are_distinguished_as_the_page_shows(spark: SparkSession, lake: Lake) -> None:
    flown = {0: ["N1", "N2", "N3"], 1: ["N2", "N3", "N4", "N5"], 2: ["N1"]}
    flights = [
        (f"UA{day}{plane}", "UA", plane, "BOS", MONDAY + timedelta(days=day), 0)
        for day, planes in flown.items()
        for plane in planes
    ]
    stored(spark.createDataFrame(flights, FLIGHTS), lake).createOrReplaceTempView("distinct_planes")
    [row] = spark.sql(QUERIES[1]).collect()
    assert row.asDict() == {"carrier": "UA", "on_both": 2, "on_monday_only": 1}


def test_of_destinations_with_as_many_flights_the_first_by_name_are_shown(spark: SparkSession) -> None:
    flights = [
        (f"UA{n}", "UA", "N1", destination, MONDAY, 0)
        for n, destination in enumerate(["SFO", "BOS", "LAX", "ORD", "LAX", "ATL"])
    ]
    frame = spark.createDataFrame(flights, FLIGHTS).repartition(4)
    [row] = derive(load().find_table("distinct_planes"), {"flights": frame}).collect()
    assert row["top_destinations"] == ["LAX", "ATL", "BOS"]


def test_a_day_without_records_has_no_percentile_and_no_plane(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("UA1", "UA", None, "BOS", MONDAY, None)], FLIGHTS)
    [row] = derive(load().find_table("distinct_planes"), {"flights": frame}).collect()
    assert (row["flights"], row["planes"], row["p90_delay_min"]) == (1, 0, None)
