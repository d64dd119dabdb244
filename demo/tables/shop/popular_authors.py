"""Authors whose posts are merged into timelines when these are read, not before."""

from twofold import DataFrame, F, table

MOST_FOLLOWERS = 50
"""A post of an author with more followers is not copied into their timelines."""


@table()
def popular_authors(follows: DataFrame) -> DataFrame:
    """One row per author with more than `MOST_FOLLOWERS` followers, without their number, which changes often."""
    followers = follows.groupBy("author").agg(F.count("*").alias("followers"))
    return followers.where(F.col("followers") > MOST_FOLLOWERS).select("author")
