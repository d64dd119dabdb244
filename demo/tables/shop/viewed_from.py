"""Page views with where the customer lived then, by the copy of the database."""

from twofold import DataFrame, F, not_null, table


@table(primary_key=["view_id"], recompute_by=["customer"], checks=[not_null("street")])
def viewed_from(page_views: DataFrame, customer_history: DataFrame) -> DataFrame:
    """One row per page view. A customer who says later when he moved changes the views since then.

    country, street: the customer's when the page was viewed, by the time at which he moved there
    """
    homes = customer_history.groupBy("customer", "moved_at").agg(
        F.max_by(F.struct("country", "street"), F.struct("valid_from", "cdc_commit_lsn")).alias("home")
    )
    v, h = page_views.alias("v"), homes.alias("h")
    had_moved = (F.col("v.customer") == F.col("h.customer")) & (F.col("h.moved_at") <= F.col("v.viewed_at"))
    return (
        v.join(h, had_moved, "left")
        .groupBy("v.view_id", "v.customer", "v.page", "v.viewed_at")
        .agg(F.max_by("h.home", "h.moved_at").alias("home"))
        .select("view_id", "customer", "page", "viewed_at", "home.country", "home.street")
    )
