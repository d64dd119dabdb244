"""Departure delays by origin airport and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between, expression, not_null
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delays_by_hour(departures: DataFrame) -> DataFrame:
    """One row per origin and hour: flights, their delay in minutes, and the share more than 15 minutes late."""
    from pyspark.sql import functions as F

    return (
        departures.where("kind = 'departed'")
        .groupBy("origin", F.window("occurred_at", "1 hour"))
        .agg(
            F.count("*").alias("flights"),
            F.avg("delay_min").alias("mean_delay_min"),
            F.round(F.percentile("delay_min", F.lit(0.9)), 1).alias("p90_delay_min"),
            F.avg(F.when(F.col("delay_min") > 15, 1.0).otherwise(0.0)).alias("late_share"),
        )
        .select(
            "origin",
            F.col("window.start").alias("hour"),
            F.col("window.end").alias("closes_at"),
            "flights",
            "mean_delay_min",
            "p90_delay_min",
            "late_share",
        )
    )


TABLE = Table(
    derive=delays_by_hour,
    key=["origin", "hour"],
    event_time="hour",
    watermark="2 hours",
    closes_at="closes_at",
    recompute_by=["origin"],
    lookback="1 hour",
    late="correct",
    rules=[
        not_null("origin"),
        between("flights", 1, 200),
        between("mean_delay_min", -240, 2_880),
        between("late_share", 0, 1),
        expression("p90_delay_min IS NULL OR p90_delay_min BETWEEN -240 AND 2880"),
    ],
)
