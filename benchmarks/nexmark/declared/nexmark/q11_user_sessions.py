"""Query 11, user sessions: the bids of each bidder without a pause of ten seconds."""

from twofold import DataFrame, F, table


@table()
def q11_user_sessions(bid: DataFrame) -> DataFrame:
    """One row per bidder and session.

    starts_at: its first bid
    last_bid_at: its last bid
    ends_at: ten seconds after the last bid
    """
    return (
        bid.groupBy("bidder", F.session_window("date_time", "10 seconds"))
        .agg(
            F.min("date_time").alias("starts_at"),
            F.max("date_time").alias("last_bid_at"),
            F.count("*").alias("bid_count"),
        )
        .drop("session_window")
        .withColumn("ends_at", F.col("last_bid_at") + F.expr("INTERVAL 10 SECONDS"))
    )
