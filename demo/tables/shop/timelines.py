"""Home timelines, but for posts of popular authors: a post is copied to each follower of its author."""

from twofold import DataFrame, table


@table(
    primary_key=["follower", "post_id"],
    event_time="posted_at",
    recompute_by=["follower", "author"],
    depends_within="1 second",
)
def timelines(posts: DataFrame, follows: DataFrame, popular_authors: DataFrame) -> DataFrame:
    """One row per follower and post of an author whom he follows and who is not popular.

    Posts are also those from before the follow. `docs/how-to/kinds-of-tables.md` has the query that adds the posts of
    popular authors.
    """
    return (
        posts.join(follows, "author")
        .join(popular_authors, "author", "left_anti")
        .select("follower", "post_id", "author", "posted_at", "version", "product", "text")
    )
