"""Query 4, average price for a category: of the winning bids of its auctions."""

from twofold import DataFrame, F, table


@table()
def q4_category_prices(q9_winning_bids: DataFrame) -> DataFrame:
    """One row per category with a winning bid.

    final: cents, rounded down
    """
    return q9_winning_bids.groupBy("category").agg(F.expr("sum(price) DIV count(*)").alias("final"))
