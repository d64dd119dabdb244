"""The sketches of days, merged, answer for all of the days."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from infra.settings import ROOT
from tables import registry
from tables.derive import derive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLIGHTS = (
    "flight_id string, carrier string, tail_number string, destination string, departed_at timestamp, "
    "departure_delay_min int"
)
MONDAY = datetime(2013, 1, 7, 12, tzinfo=UTC)


def test_sketches_merge_over_days_as_the_page_shows(spark: SparkSession) -> None:
    flights = [
        (f"UA{day}{n}", "UA", f"N{n + day}", f"D{n % 5}", MONDAY + timedelta(days=day, minutes=n), n + day)
        for day in range(7)
        for n in range(60)
    ]
    frame = spark.createDataFrame(flights, FLIGHTS)
    days = derive(registry.load().find_table("distinct_planes"), {"flights": frame})
    days.createOrReplaceTempView("distinct_planes")
    page = (ROOT / "docs" / "kinds-of-tables.md").read_text("utf-8")
    query = re.search(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert query is not None
    delays = sorted(delay for *_, delay in flights)
    [row] = spark.sql(query[1]).collect()
    assert row.asDict() == {"carrier": "UA", "planes": 66, "p90_delay_min": delays[-(-len(delays) * 9 // 10) - 1]}
    assert days.where(f"day = DATE '{date(2013, 1, 7)}'").select("planes").collect()[0][0] == 60


def test_of_destinations_with_as_many_flights_the_first_by_name_are_shown(spark: SparkSession) -> None:
    flights = [
        (f"UA{n}", "UA", "N1", destination, MONDAY, 0)
        for n, destination in enumerate(["SFO", "BOS", "LAX", "ORD", "LAX", "ATL"])
    ]
    frame = spark.createDataFrame(flights, FLIGHTS).repartition(4)
    [row] = derive(registry.load().find_table("distinct_planes"), {"flights": frame}).collect()
    assert row["top_destinations"] == ["LAX", "ATL", "BOS"]


def test_a_day_of_which_nothing_is_known_has_no_percentile_and_no_plane(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("UA1", "UA", None, "BOS", MONDAY, None)], FLIGHTS)
    [row] = derive(registry.load().find_table("distinct_planes"), {"flights": frame}).collect()
    assert (row["flights"], row["planes"], row["p90_delay_min"]) == (1, 0, None)
