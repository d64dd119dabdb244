"""Departures of each route within three hours, counted anew every hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between, not_null
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def busiest_routes(departures: DataFrame) -> DataFrame:
    """One row per route and window of three hours, one starting each hour: flights that left, and their rate."""
    from pyspark.sql import functions as F

    return (
        departures.where("kind = 'departed'")
        .groupBy("origin", "destination", F.window("occurred_at", "3 hours", "1 hour"))
        .agg(F.count("*").alias("flights"))
        .select(
            "origin",
            "destination",
            F.col("window.start").alias("starts_at"),
            F.col("window.end").alias("closes_at"),
            "flights",
            (F.col("flights") / 3).alias("flights_per_hour"),
        )
    )


TABLE = Table(
    derive=busiest_routes,
    key=["origin", "destination", "starts_at"],
    event_time="starts_at",
    watermark="2 hours",
    closes_at="closes_at",
    recompute_by=["origin", "destination"],
    lookback="3 hours",
    every="2 seconds",
    rules=[not_null("destination"), between("flights", 1, 200)],
)
