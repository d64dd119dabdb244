"""Query 19, top bids: the ten highest of each auction."""

from twofold import DataFrame, F, Window, table


@table(primary_key=["auction", "rank_number"], recompute_by=["auction"])
def q19_top_bids(bid: DataFrame) -> DataFrame:
    """One row per auction and rank; of equal prices the first bid has the better rank."""
    best_first = Window.partitionBy("auction").orderBy(F.desc("price"), "date_time", "bidder")
    return bid.withColumn("rank_number", F.row_number().over(best_first)).where("rank_number <= 10").drop("appended_at")
