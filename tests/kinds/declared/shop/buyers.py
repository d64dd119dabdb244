"""Who bought in each hour, as filters that tell whether a customer did, and can be merged when they are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between
from tables.declaration import Table
from tables.membership import members

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def buyers(orders: DataFrame) -> DataFrame:
    """One row per product and hour: orders, and a Bloom filter of their customers."""
    from pyspark.sql import functions as F

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


TABLE = Table(
    derive=buyers,
    key=["product", "hour"],
    event_time="hour",
    watermark="30 minutes",
    closes_at="closes_at",
    recompute_by=["product"],
    lookback="1 hour",
    rules=[between("orders", 1, None)],
)
