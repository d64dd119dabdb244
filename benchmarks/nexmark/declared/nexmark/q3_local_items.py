"""Query 3, local item suggestion: who sells in Oregon, Idaho or California in category 10."""

from twofold import DataFrame, F, table


@table(primary_key=["id"])
def q3_local_items(auction: DataFrame, person: DataFrame) -> DataFrame:
    """One row per auction whose seller is known, however far apart both were heard of.

    id: the auction
    """
    a = auction.where("category = 10").alias("a")
    p = person.where("state IN ('OR', 'ID', 'CA')").alias("p")
    return a.join(p, F.col("a.seller") == F.col("p.id")).select("a.seller", "p.name", "p.city", "p.state", "a.id")
