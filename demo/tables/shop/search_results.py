"""Searches with the clicks on their results, and those without any: a left join of two topics."""

from twofold import DataFrame, F, expression, table


@table(
    primary_key=["search_id", "click_id"],
    watermark="30 minutes",
    lineage_columns=["searched_record", "clicked_record"],
    checks=[expression("clicked_at IS NULL OR clicked_at >= searched_at")],
)
def search_results(searches: DataFrame, clicks: DataFrame) -> DataFrame:
    """One row per click within ten minutes of its search, and per search without one.

    click_id: null for a search that led to no click
    closes_at: ten minutes after the search, when a click no longer counts
    searched_record: the log record of the search
    clicked_record: the log record of the click
    product: the result that was clicked
    """
    s, c = searches.alias("s"), clicks.alias("c")
    within = F.col("s.searched_at") + F.expr("INTERVAL 10 MINUTES")
    return s.join(
        c,
        (F.col("s.search_id") == F.col("c.search_id"))
        & (F.col("c.clicked_at") >= F.col("s.searched_at"))
        & (F.col("c.clicked_at") <= within),
        "left",
    ).select(
        "s.search_id",
        "c.click_id",
        "s.terms",
        "c.product",
        "s.searched_at",
        "c.clicked_at",
        within.alias("closes_at"),
        F.col("s.record").alias("searched_record"),
        F.col("c.record").alias("clicked_record"),
    )
