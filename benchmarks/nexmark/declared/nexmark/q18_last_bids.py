"""Query 18, last bid: of each bidder for each auction."""

from twofold import DataFrame, table


@table(primary_key=["bidder", "auction"], sequence_by=["date_time"])
def q18_last_bids(bid: DataFrame) -> DataFrame:
    """One row per bidder and auction."""
    return bid.select("auction", "bidder", "price", "channel", "url", "date_time", "extra")
