"""Posts as they are now, by the greatest version of each."""

from twofold import DataFrame, F, table, to_search


@table(event_time="posted_at", outputs=[to_search(text=["text"])])
def posts(post_events: DataFrame) -> DataFrame:
    """One row per post that was not deleted; what was deleted stays so, whatever edit arrives later.

    version: the greatest that has arrived
    posted_at: time of the post's first event
    """
    return (
        post_events.groupBy("post_id")
        .agg(
            F.min("happened_at").alias("posted_at"),
            F.max(F.struct("version", "happened_at", "author", "product", "text")).alias("newest"),
            F.bool_or(F.col("kind") == "deleted").alias("is_deleted"),
        )
        .where("NOT is_deleted")
        .select("post_id", "newest.author", "posted_at", "newest.version", "newest.product", "newest.text")
    )
