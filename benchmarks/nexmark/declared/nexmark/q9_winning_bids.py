"""Query 9, winning bids: the best bid for each auction until it expires."""

from twofold import DataFrame, F, Window, table


@table(primary_key=["id"], recompute_by=["id"], scope_columns={"bid": {"id": "auction"}})
def q9_winning_bids(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """One row per auction with a bid: of those between its begin and its end the highest, of equal ones the first."""
    b = bid.select(
        "auction", "bidder", "price", F.col("date_time").alias("bid_date_time"), F.col("extra").alias("bid_extra")
    )
    in_time = F.col("bid_date_time").between(F.col("date_time"), F.col("expires"))
    best_first = Window.partitionBy("id").orderBy(F.desc("price"), "bid_date_time", "bidder", "date_time")
    return (
        auction.join(b, (F.col("id") == F.col("auction")) & in_time)
        .withColumn("nth", F.row_number().over(best_first))
        .where("nth = 1")
        .drop("nth", "auction")
    )
