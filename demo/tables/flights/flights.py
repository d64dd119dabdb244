"""Every flight that left New York, with its landing."""

from twofold import DataFrame, F, expression, not_null, one_of, table, unique


@table(
    owner="operations",
    freshness="5 minutes",
    primary_key=["flight_id"],
    sequence_by=["departed_at", "arrived_at"],  # a flight that is reported to have left twice left the second time
    watermark="2 hours",
    lineage_columns=["departed_record", "arrived_record"],
    checks=[
        unique("flight_id"),
        not_null("carrier"),
        one_of("outcome", ["landed", "never landed"]),
        expression("arrived_at IS NULL OR arrived_at >= departed_at"),
    ],
)
def flights(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    """One row per departure: landed within 24 hours of it, or never landed.

    departed_at: when the plane left
    arrived_at: when it landed; null for a flight that never landed
    arrival_delay_min: delay of the landing against the schedule, minutes; negative is early
    outcome: landed, or never landed
    expires_at: 24 hours after the departure, when a landing no longer counts
    departed_record: the log record of the departure
    arrived_record: the log record of the landing
    """
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
