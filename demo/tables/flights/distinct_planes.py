"""Planes, delays and destinations of each carrier and day, as sketches that can be merged when they are served."""

from twofold import DataFrame, F, between, expression, not_null, table


@table(
    tolerances={
        "planes": 0.02,
        **dict.fromkeys(["p90_delay_min", "top_destinations"], 0),
        **dict.fromkeys(["planes_sketch", "planes_theta", "delays_sketch", "destinations_sketch"], float("inf")),
    },
    checks=[not_null("carrier"), between("planes", 0, 1_000), expression("size(top_destinations) BETWEEN 1 AND 3")],
)
def distinct_planes(flights: DataFrame) -> DataFrame:
    """One row per carrier and New York day: planes and the 90th percentile of delay in minutes, with their sketches.

    Of the planes there are two: that of HLL is small, and that of theta can tell planes of one day and another. A
    day's sketch of delays holds all of up to 800 flights, so that it is exact; merged ones need not be. Of the
    destinations, the three with the most flights, those of equal number by name.

    day: date of departure in New York
    flights: departures of the day
    planes: different tail numbers, estimated by HLL
    planes_sketch: HLL sketch of the tail numbers
    planes_theta: theta sketch of the tail numbers
    p90_delay_min: 90th percentile of the departure delay, minutes
    delays_sketch: KLL sketch of the departure delays
    top_destinations: the three destinations with the most flights
    destinations_sketch: sketch of the destinations and their flights
    """
    known_delays = F.kll_sketch_get_n_bigint("delays_sketch")  # an empty sketch refuses to tell its percentile
    top = "approx_top_k_estimate(destinations_sketch, 500)"
    most = f"transform(array_sort({top}, (a, b) -> CASE WHEN a.count <> b.count THEN sign(b.count - a.count)::INT "
    most += "WHEN a.item < b.item THEN -1 WHEN a.item > b.item THEN 1 ELSE 0 END), t -> t.item)"
    return (
        flights.withColumn("day", F.to_date(F.from_utc_timestamp("departed_at", "America/New_York")))
        .groupBy("carrier", "day")
        .agg(
            F.count("*").alias("flights"),
            F.hll_sketch_agg("tail_number", 12).alias("planes_sketch"),
            F.kll_sketch_agg_bigint(F.col("departure_delay_min").cast("bigint"), 800).alias("delays_sketch"),
            F.theta_sketch_agg("tail_number").alias("planes_theta"),
            F.expr("approx_top_k_accumulate(destination, 2000)").alias("destinations_sketch"),
        )
        .select(
            "carrier",
            "day",
            "flights",
            F.hll_sketch_estimate("planes_sketch").alias("planes"),
            "planes_sketch",
            "planes_theta",
            F.when(known_delays > 0, F.kll_sketch_get_quantile_bigint("delays_sketch", F.lit(0.9))).alias(
                "p90_delay_min"
            ),
            "delays_sketch",
            F.slice(F.expr(most), 1, 3).alias("top_destinations"),
            "destinations_sketch",
        )
    )
