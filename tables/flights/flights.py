"""Every flight that left New York, with its landing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import expression, not_null, one_of, unique
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def flights(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    """One row per departure: landed within 24 hours of it, or never landed."""
    from pyspark.sql import functions as F

    d = departures.where("kind = 'departed'").alias("d")
    a = arrivals.alias("a")
    day = F.expr("INTERVAL 24 HOURS")
    return d.join(
        a,
        (F.col("d.flight_id") == F.col("a.flight_id"))
        & (F.col("a.arrived_at") >= F.col("d.occurred_at"))
        & (F.col("a.arrived_at") <= F.col("d.occurred_at") + day),
        "left",
    ).select(
        "d.flight_id",
        "d.carrier",
        "d.flight",
        "d.tail_number",
        "d.origin",
        "d.destination",
        "d.scheduled_at",
        F.col("d.occurred_at").alias("departed_at"),
        F.col("d.delay_min").alias("departure_delay_min"),
        "a.arrived_at",
        F.col("a.delay_min").alias("arrival_delay_min"),
        F.col("a.air_time_min").alias("air_time_min"),
        F.when(F.col("a.arrived_at").isNull(), "never landed").otherwise("landed").alias("outcome"),
        (F.col("d.occurred_at") + day).alias("expires_at"),
        F.col("d.record").alias("departed_record"),
        F.col("a.record").alias("arrived_record"),
    )


TABLE = Table(
    derive=flights,
    key=["flight_id"],
    latest_by=["departed_at", "arrived_at"],  # a flight that is reported to have left twice left the second time
    event_time="departed_at",
    watermark="2 hours",
    closes_at="expires_at",
    recompute_by=["flight_id"],
    lookback="24 hours",
    records=["departed_record", "arrived_record"],
    rules=[
        unique("flight_id"),
        not_null("carrier"),
        one_of("outcome", ["landed", "never landed"]),
        expression("arrived_at IS NULL OR arrived_at >= departed_at"),
    ],
)
