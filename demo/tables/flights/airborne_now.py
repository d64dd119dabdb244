"""How busy the sky and the airport were at each departure."""

from twofold import DataFrame, F, Window, between, expression, not_null, table, unique


@table(
    event_time="departed_at",
    recompute_by=["origin"],
    depends_within="25 hours",  # a flight lands within 24, and the longest day has 25
    checks=[
        unique("flight_id"),
        not_null("origin"),
        between("in_the_air", 0, 1_000),
        between("left_last_hour", 1, 200),
        expression("left_today > 0"),
    ],
)
def airborne_now(flights: DataFrame) -> DataFrame:
    """One row per departure: flights of its origin in the air at that moment, and those that left in the last hour.

    Beside them what has added up since its day began in New York: flights that left, and their delay in minutes. All
    count the departure itself; a flight that never landed is in no air, since it is unknown for how long it was. The
    last hour begins after the moment 60 minutes ago.

    departed_at: when the plane left
    in_the_air: flights of the origin in the air at the departure, itself included
    left_last_hour: flights that left the origin in the 60 minutes before, itself included
    left_today: flights that left the origin since midnight in New York
    delay_today_min: the sum of their departure delays, minutes
    """
    landed = F.col("arrived_at").isNotNull()
    takeoffs = flights.select(
        "flight_id",
        "origin",
        "departed_at",
        "departure_delay_min",
        F.lit(1).alias("left"),
        F.when(landed, 1).otherwise(0).alias("change"),
    )
    landings = flights.where(landed).select(
        "flight_id",
        "origin",
        F.col("arrived_at").alias("departed_at"),
        F.lit(0).alias("left"),
        F.lit(-1).alias("change"),
    )
    day = F.to_date(F.from_utc_timestamp("departed_at", "America/New_York"))
    moment = F.unix_micros("departed_at")
    by_origin = Window.partitionBy("origin").orderBy(moment)
    until_now = by_origin.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    last_hour = by_origin.rangeBetween(1 - 3_600_000_000, Window.currentRow)
    today = Window.partitionBy("origin", day).orderBy(moment).rangeBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        takeoffs.unionByName(landings, allowMissingColumns=True)
        .withColumn("in_the_air", F.sum("change").over(until_now))
        .withColumn("left_last_hour", F.sum("left").over(last_hour))
        .withColumn("left_today", F.sum("left").over(today))
        .withColumn("delay_today_min", F.sum("departure_delay_min").over(today))
        .where("left = 1")
        .select("flight_id", "origin", "departed_at", "in_the_air", "left_last_hour", "left_today", "delay_today_min")
    )
