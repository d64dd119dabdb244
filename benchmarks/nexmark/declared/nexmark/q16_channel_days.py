"""Query 16, channel statistics: bids, bidders and auctions of each channel and day, by rank of price."""

from twofold import DataFrame, F, table


@table()
def q16_channel_days(bid: DataFrame) -> DataFrame:
    """One row per channel and day; prices of rank 1 are below 10,000, those of rank 3 are 1,000,000 or more.

    minute: the last in which there was a bid, HH:mm
    """
    price = F.col("price")
    ranks = {"rank1": price < 10_000, "rank2": (price >= 10_000) & (price < 1_000_000), "rank3": price >= 1_000_000}
    kinds = {"total": F.lit(True), **ranks}
    return bid.groupBy("channel", F.to_date("date_time").alias("day")).agg(
        F.max(F.date_format("date_time", "HH:mm")).alias("minute"),
        *(F.count_if(of_rank).alias(f"{rank}_bids") for rank, of_rank in kinds.items()),
        *(
            F.count_distinct(F.when(of_rank, F.col(who))).alias(f"{rank}_{who}s")
            for who in ("bidder", "auction")
            for rank, of_rank in kinds.items()
        ),
    )
