"""Query 2, selection: the bids for every 123rd auction."""

from twofold import DataFrame, table


@table()
def q2_selection(bid: DataFrame) -> DataFrame:
    """One row per bid for such an auction; the published query has the auction and the price alone."""
    return bid.where("auction % 123 = 0").select("auction", "bidder", "date_time", "price")
