"""The working days of each plane: departures from New York without a pause of six hours."""

from twofold import DataFrame, F, expression, not_null, table


@table(
    checks=[not_null("tail_number"), expression("last_departed_at >= first_departed_at AND legs > 0")],
)
def plane_days(departures: DataFrame) -> DataFrame:
    """One row per plane and session of departures, each at most six hours after the one before; delays in minutes.

    A plane without a known tail number is in none.

    first_departed_at: first departure of the session
    last_departed_at: last departure of the session
    legs: departures of the session
    delay_min: the sum of their delays, minutes
    """
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
