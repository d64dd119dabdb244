"""Buyers of each hour as mergeable filters that answer whether a customer bought."""

from twofold import DataFrame, F, between, members, table


@table(
    watermark="30 minutes",
    checks=[between("orders", 1, None)],
)
def buyers(orders: DataFrame) -> DataFrame:
    """One row per product and hour: orders, and a Bloom filter of their customers.

    hour: start of the hour
    closes_at: end of the hour
    orders: orders of the product in the hour
    customers: Bloom filter of the customers who ordered, which `may_contain` asks
    """
    return (
        orders.groupBy("product", F.window("ordered_at", "1 hour"))
        .agg(F.count("*").alias("orders"), members("customer").alias("customers"))
        .select(
            "product",
            F.col("window.start").alias("hour"),
            F.col("window.end").alias("closes_at"),
            "orders",
            "customers",
        )
    )
