"""Query 17, auction statistics: bids and prices of each auction and day."""

from twofold import DataFrame, F, table


@table(watermark="4 seconds")
def q17_auction_days(bid: DataFrame) -> DataFrame:
    """One row per auction and day; prices of rank 1 are below 10,000, those of rank 3 are 1,000,000 or more.

    avg_price: rounded down
    """
    price = F.col("price")
    return (
        bid.groupBy("auction", F.window("date_time", "1 day"))
        .agg(
            F.count("*").alias("total_bids"),
            F.count_if(price < 10_000).alias("rank1_bids"),
            F.count_if((price >= 10_000) & (price < 1_000_000)).alias("rank2_bids"),
            F.count_if(price >= 1_000_000).alias("rank3_bids"),
            F.min(price).alias("min_price"),
            F.max(price).alias("max_price"),
            F.expr("sum(price) DIV count(*)").alias("avg_price"),
            F.sum(price).alias("sum_price"),
        )
        .withColumns({"day": F.col("window.start"), "ends_at": F.col("window.end")})
        .drop("window")
    )
