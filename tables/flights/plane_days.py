"""The working days of each plane: departures from New York without a pause of six hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import expression, not_null
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plane_days(departures: DataFrame) -> DataFrame:
    """One row per plane and session of departures, each at most six hours after the one before; delays in minutes.

    A plane without a known tail number is in none.
    """
    from pyspark.sql import functions as F

    return (
        departures.where("kind = 'departed' AND tail_number IS NOT NULL")
        .groupBy("tail_number", F.session_window("occurred_at", "6 hours"))
        .agg(
            # Spark pushes a filter on the session's own start or end below the aggregation, where it loses rows.
            F.min("occurred_at").alias("first_departed_at"),
            F.max("occurred_at").alias("last_departed_at"),
            F.count("*").alias("legs"),
            F.sum("delay_min").alias("delay_min"),
        )
        .drop("session_window")
    )


TABLE = Table(
    derive=plane_days,
    key=["tail_number", "first_departed_at"],
    event_time="first_departed_at",
    ends_at="last_departed_at",
    recompute_by=["tail_number"],
    lookback="6 hours",
    every="5 seconds",
    rules=[not_null("tail_number"), expression("last_departed_at >= first_departed_at AND legs > 0")],
)
