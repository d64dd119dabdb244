"""Query 8, new users: persons who begin an auction in the ten seconds in which they register."""

from twofold import DataFrame, F, table


@table(primary_key=["id", "starts_at"])
def q8_new_sellers(person: DataFrame, auction: DataFrame) -> DataFrame:
    """One row per person and ten seconds."""
    p = person.select("id", "name", F.window("date_time", "10 seconds").start.alias("starts_at")).alias("p")
    a = auction.select("seller", F.window("date_time", "10 seconds").start.alias("starts_at")).alias("a")
    same = (F.col("p.id") == F.col("a.seller")) & (F.col("p.starts_at") == F.col("a.starts_at"))
    return p.join(a, same, "left_semi")
