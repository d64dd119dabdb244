"""Query 12, processing time windows: the bids of each bidder in each ten seconds of the broker's append time.

The published query counts by the clock of the machine that runs it, so that no two runs agree. When the broker appended
a record is processing time, too, and is kept in the log: a recomputation finds the same windows.
"""

from twofold import DataFrame, F, table


@table()
def q12_append_time_windows(bid: DataFrame) -> DataFrame:
    """One row per bidder and ten seconds in which bids arrived."""
    return (
        bid.groupBy("bidder", F.window("appended_at", "10 seconds"))
        .agg(F.count("*").alias("bid_count"))
        .select("bidder", F.col("window.start").alias("starts_at"), F.col("window.end").alias("ends_at"), "bid_count")
    )
