"""Carts in which nothing happened for an hour: the pattern "A without B"."""

from twofold import DataFrame, F, expression, table


@table(checks=[expression("size(lines) > 0")])
def abandoned_carts(carts: DataFrame) -> DataFrame:
    """One row per open cart with something in it, after whose event no other followed within an hour.

    abandoned_at: an hour after the event; before that a reader's clock decides that the cart is still in use
    """
    abandoned_at = F.col("valid_from") + F.expr("INTERVAL 1 HOUR")
    return (
        carts.where("state = 'open' AND size(lines) > 0")
        .withColumn("abandoned_at", abandoned_at)
        .where("valid_to IS NULL OR valid_to > abandoned_at")
        .select("cart_id", "version", "lines", "abandoned_at")
    )
