"""Query 5, hot items: the auctions with the most bids in the last ten seconds, every two seconds."""

from twofold import DataFrame, F, Window, table


@table(primary_key=["starts_at", "auction"], event_time="starts_at", recompute_by=[], depends_within="10 seconds")
def q5_hot_items(bid: DataFrame) -> DataFrame:
    """One row per window and auction that no other one has more bids than in it."""
    counted = bid.groupBy("auction", F.window("date_time", "10 seconds", "2 seconds")).agg(F.count("*").alias("num"))
    return (
        counted.withColumn("most", F.max("num").over(Window.partitionBy("window")))
        .where("num = most")
        .select("auction", "num", F.col("window.start").alias("starts_at"), F.col("window.end").alias("ends_at"))
    )
