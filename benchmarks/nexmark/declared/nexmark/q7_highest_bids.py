"""Query 7, highest bid: of each ten seconds."""

from twofold import DataFrame, F, table


@table(watermark="4 seconds")
def q7_highest_bids(bid: DataFrame) -> DataFrame:
    """One row per ten seconds: the bid with the highest price, of equal ones the first."""
    order = F.struct("price", -F.unix_micros("date_time"), "auction", "bidder", "date_time")
    highest = F.max_by(F.struct("auction", "bidder", "price", "date_time", "extra"), order)
    return (
        bid.groupBy(F.window("date_time", "10 seconds"))
        .agg(highest.alias("highest"))
        .select(F.col("window.start").alias("starts_at"), F.col("window.end").alias("ends_at"), "highest.*")
    )
