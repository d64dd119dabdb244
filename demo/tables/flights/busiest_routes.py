"""Departures of each route within three hours, counted every hour."""

from twofold import DataFrame, F, between, not_null, table


@table(
    owner="network planning",
    watermark="2 hours",
    checks=[not_null("destination"), between("flights", 1, 200)],
)
def busiest_routes(departures: DataFrame) -> DataFrame:
    """One row per route and window of three hours, one starting each hour: flights that left, and their rate.

    starts_at: start of the three hours
    closes_at: end of the three hours
    flights: departures in the three hours
    flights_per_hour: a third of them
    """
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
