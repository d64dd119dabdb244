"""Departure delays by origin and hour against the same hour a week before."""

from twofold import DataFrame, F, between, not_null, table


@table(
    owner="punctuality",
    freshness="5 minutes",
    primary_key=["origin", "hour"],
    event_time="hour",
    depends_within="7 days",
    checks=[not_null("origin"), between("flights", 1, 200)],
)
def delay_trend(delays_by_hour: DataFrame) -> DataFrame:
    """One row per origin and hour: flights and mean delay in minutes, those of 168 hours before, and the change.

    flights_week_before: departures in the same hour 168 hours before; null where there were none
    mean_delay_week_before_min: their mean delay, minutes; negative is early
    change_min: mean delay against that of the week before, minutes
    """
    before = delays_by_hour.select(
        F.col("origin").alias("origin_before"),
        (F.col("hour") + F.expr("INTERVAL 168 HOURS")).alias("a_week_after"),
        F.col("flights").alias("flights_week_before"),
        F.col("mean_delay_min").alias("mean_delay_week_before_min"),
    )
    same_hour = (F.col("origin") == F.col("origin_before")) & (F.col("hour") == F.col("a_week_after"))
    return delays_by_hour.join(before, same_hour, "left").select(
        "origin",
        "hour",
        "flights",
        "flights_week_before",
        "mean_delay_min",
        "mean_delay_week_before_min",
        (F.col("mean_delay_min") - F.col("mean_delay_week_before_min")).alias("change_min"),
    )
