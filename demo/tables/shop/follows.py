"""Who follows whom now."""

from twofold import DataFrame, F, table


@table()
def follows(follow_events: DataFrame) -> DataFrame:
    """One row per follower and author; of two events of one moment the end counts.

    followed_at: since when
    """
    return (
        follow_events.groupBy("follower", "author")
        .agg(F.max(F.struct("happened_at", "kind")).alias("newest"))
        .where("newest.kind = 'followed'")
        .select("follower", "author", F.col("newest.happened_at").alias("followed_at"))
    )
