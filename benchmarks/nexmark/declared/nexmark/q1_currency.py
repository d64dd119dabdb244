"""Query 1, currency conversion: the price of each bid in euros."""

from twofold import DataFrame, F, table


@table()
def q1_currency(bid: DataFrame) -> DataFrame:
    """One row per bid.

    price: euros, by the published rate of 0.908
    """
    euros = F.expr("CAST(price * 0.908BD AS DECIMAL(23, 3))")
    return bid.select("auction", "bidder", euros.alias("price"), "date_time", "extra")
