"""Departure delays by origin airport and hour."""

from twofold import DataFrame, F, between, expression, not_null, table


@table(
    watermark="2 hours",
    checks=[
        not_null("origin"),
        between("flights", 1, 200),
        between("mean_delay_min", -240, 2_880),
        between("late_share", 0, 1),
        expression("p90_delay_min IS NULL OR p90_delay_min BETWEEN -240 AND 2880"),
    ],
)
def delays_by_hour(departures: DataFrame) -> DataFrame:
    """One row per origin and hour: flights, their delay in minutes, and the share more than 15 minutes late.

    hour: start of the hour
    closes_at: end of the hour
    flights: departures in the hour
    mean_delay_min: mean delay against the schedule, minutes; negative is early
    p90_delay_min: the delay that nine flights of ten do not exceed, minutes
    late_share: share of the flights that left more than 15 minutes late
    """
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
