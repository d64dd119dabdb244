"""Orders without those that a second click made: deduplication by an identity of its own, within a time."""

from twofold import DataFrame, F, Window, table, unique


@table(
    primary_key=["order_id"],
    event_time="ordered_at",
    depends_within="5 minutes",
    checks=[unique("order_id")],
)
def meant_orders(orders: DataFrame) -> DataFrame:
    """One row per order, but those of the same customer and product at most five minutes after another."""
    same = Window.partitionBy("customer", "product").orderBy("ordered_at", "order_id")
    before = F.lag("ordered_at").over(same)
    is_meant = before.isNull() | (F.col("ordered_at") > before + F.expr("INTERVAL 5 MINUTES"))
    return orders.withColumn("is_meant", is_meant).where("is_meant").drop("is_meant")
