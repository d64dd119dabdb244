"""Query 14, calculation: bids of a range of prices, with the time of day and a count of letters."""

from twofold import DataFrame, F, table


@table()
def q14_calculation(bid: DataFrame) -> DataFrame:
    """One row per bid of more than 1,000,000 and less than 50,000,000 in euros.

    price: euros, by the published rate of 0.908
    bid_time_type: dayTime from 8 to 18 o'clock, nightTime until 6 and from 20, otherTime between
    c_counts: letters c in extra
    """
    hour = F.hour("date_time")
    return (
        bid.withColumn("price", F.expr("CAST(price * 0.908BD AS DECIMAL(23, 3))"))
        .where("price > 1000000 AND price < 50000000")
        .select(
            "auction",
            "bidder",
            "price",
            F.when(hour.between(8, 18), "dayTime")
            .when((hour <= 6) | (hour >= 20), "nightTime")
            .otherwise("otherTime")
            .alias("bid_time_type"),
            "date_time",
            "extra",
            F.expr("length(extra) - length(replace(extra, 'c', ''))").cast("long").alias("c_counts"),
        )
    )
