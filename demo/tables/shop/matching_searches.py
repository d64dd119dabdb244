"""Posts that meet saved searches: a new post finds its searches, a new search also the posts from before."""

from twofold import DataFrame, search_matches, table


@table(primary_key=["post_id", "search_id"], recompute_by=["post_id", "search_id"])
def matching_searches(posts: DataFrame, saved_search_terms: DataFrame) -> DataFrame:
    """One row per post and saved search that it meets, as both are now."""
    found = search_matches(posts, saved_search_terms, text=["text"], numbers=["version"])
    return found.select("post_id", "search_id", "customer", "name", "query", "author", "posted_at", "version", "text")
