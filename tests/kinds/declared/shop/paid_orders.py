"""Orders with the payments that came within an hour: an inner join of two topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import expression, unique
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """One row per accepted payment whose order was at most an hour before it."""
    from pyspark.sql import functions as F

    o, p = orders.alias("o"), payments.where("outcome = 'accepted'").alias("p")
    hour = F.expr("INTERVAL 1 HOUR")
    return o.join(
        p,
        (F.col("o.order_id") == F.col("p.order_id"))
        & (F.col("p.tried_at") >= F.col("o.ordered_at"))
        & (F.col("p.tried_at") <= F.col("o.ordered_at") + hour),
    ).select(
        "p.payment_id",
        "o.order_id",
        "o.customer",
        "o.cents",
        "o.ordered_at",
        F.col("p.tried_at").alias("paid_at"),
        (F.col("o.ordered_at") + hour).alias("closes_at"),
    )


TABLE = Table(
    derive=paid_orders,
    key=["payment_id"],
    event_time="ordered_at",
    watermark="30 minutes",
    closes_at="closes_at",
    recompute_by=["order_id"],
    lookback="1 hour",
    rules=[unique("payment_id"), expression("paid_at >= ordered_at")],
)
