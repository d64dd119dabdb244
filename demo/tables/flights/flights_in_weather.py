"""Every departure with the weather that was observed last before it."""

from twofold import DataFrame, F, Window, expression, not_null, table, unique


@table(
    primary_key=["flight_id"],
    sequence_by=["departed_at"],  # as flights has it
    event_time="departed_at",
    recompute_by=["origin"],  # which observations lack: one of any airport touches the departures of its two hours
    depends_within="2 hours",
    checks=[unique("flight_id"), not_null("carrier"), expression("observed_at IS NULL OR observed_at <= departed_at")],
)
def flights_in_weather(departures: DataFrame, weather: DataFrame) -> DataFrame:
    """One row per departure: the latest observation at its origin, by then at most two hours old; nulls without one.

    origin: airport of departure, IATA code
    departed_at: when the plane left
    observed_at: when the weather was observed; null where no observation is recent
    """
    measures = ["temperature_f", "wind_speed_mph", "precipitation_in", "visibility_mi"]
    flown = departures.where("kind = 'departed'").select(
        "flight_id",
        "carrier",
        "origin",
        F.col("occurred_at").alias("departed_at"),
        F.col("delay_min").alias("departure_delay_min"),
        F.lit(1).alias("after"),  # an observation of the same moment is known to the departure
    )
    observed = weather.select(
        F.col("airport").alias("origin"),
        F.col("observed_at").alias("departed_at"),
        F.lit(0).alias("after"),
        F.struct("observed_at", *measures).alias("latest"),
    )
    until_now = Window.partitionBy("origin").orderBy("departed_at", "after").rowsBetween(Window.unboundedPreceding, 0)
    latest = F.last("latest", ignorenulls=True).over(until_now)
    is_recent = F.col("latest.observed_at") >= F.col("departed_at") - F.expr("INTERVAL 2 HOURS")
    return (
        flown.unionByName(observed, allowMissingColumns=True)
        .withColumn("latest", latest)
        .where("after = 1")
        .select(
            "flight_id",
            "carrier",
            "origin",
            "departed_at",
            "departure_delay_min",
            *(F.when(is_recent, F.col(f"latest.{column}")).alias(column) for column in ("observed_at", *measures)),
        )
    )
