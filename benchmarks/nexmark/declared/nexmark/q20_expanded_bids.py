"""Query 20, expanded bids: those for auctions of category 10, with the auction."""

from twofold import DataFrame, F, table


@table(primary_key=["auction", "bidder", "bid_date_time"])
def q20_expanded_bids(bid: DataFrame, auction: DataFrame) -> DataFrame:
    """One row per bid whose auction is known, however far apart both were heard of."""
    a, b = auction.where("category = 10").alias("a"), bid.alias("b")
    return b.join(a, F.col("b.auction") == F.col("a.id")).select(
        "b.auction",
        "b.bidder",
        "b.price",
        "b.channel",
        "b.url",
        F.col("b.date_time").alias("bid_date_time"),
        F.col("b.extra").alias("bid_extra"),
        "a.item_name",
        "a.description",
        "a.initial_bid",
        "a.reserve",
        F.col("a.date_time").alias("auction_date_time"),
        "a.expires",
        "a.seller",
        "a.category",
        F.col("a.extra").alias("auction_extra"),
    )
