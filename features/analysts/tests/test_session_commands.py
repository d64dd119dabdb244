"""`twofold spark`: a PySpark shell over the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.conftest import Cli
from twofold.features.analysts.session_commands import create_views
from twofold.infra.delta.lake import Lake
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_without_a_server_there_is_no_connection_string(home: object, cli: Cli) -> None:
    ran = cli("spark", "--url")
    assert (ran.code, "There is no Spark server" in ran.err) == (2, True)


def test_each_table_is_a_view_and_events_show_records_alone(spark: SparkSession, late_reading: World) -> None:
    views = create_views(spark, Lake(late_reading.settings))
    assert {"hours", "kept", "newest", "readings", "readings_quarantine", "gaps"} <= set(views)
    assert spark.sql("SELECT count(*) AS n FROM readings").collect()[0].n == 6, "seven records, one of them no reading"
    assert spark.table("hours").where("sensor = 'b'").count() == 2
