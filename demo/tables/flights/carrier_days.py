"""How punctual each carrier was on each day."""

from twofold import DataFrame, F, between, expression, not_null, table


@table(
    owner="punctuality",
    approve_above=20,
    checks=[
        not_null("carrier"),
        expression("landed <= flights"),
        between("mean_departure_delay_min", -240, 2_880),
    ],
)
def carrier_days(flights: DataFrame) -> DataFrame:
    """One row per carrier and New York day of departure: flights, landings and mean delays in minutes.

    day: date of departure in New York
    flights: departures of the day
    landed: those of them that landed within 24 hours
    mean_departure_delay_min: minutes; negative is early
    mean_arrival_delay_min: minutes, of the flights that landed; negative is early
    """
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
