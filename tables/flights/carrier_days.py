"""How punctual each carrier was on each day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between, expression, not_null
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def carrier_days(flights: DataFrame) -> DataFrame:
    """One row per carrier and New York day of departure: flights, landings and mean delays in minutes."""
    from pyspark.sql import functions as F

    return (
        flights.withColumn("day", F.to_date(F.from_utc_timestamp("departed_at", "America/New_York")))
        .groupBy("carrier", "day")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("outcome") == "landed").alias("landed"),
            F.avg("departure_delay_min").alias("mean_departure_delay_min"),
            F.avg("arrival_delay_min").alias("mean_arrival_delay_min"),
        )
    )


TABLE = Table(
    derive=carrier_days,
    key=["carrier", "day"],
    event_time="day",
    recompute_by=["carrier"],
    lookback="2 days",
    every="2 seconds",
    rules=[
        not_null("carrier"),
        expression("landed <= flights"),
        between("mean_departure_delay_min", -240, 2_880),
    ],
)
