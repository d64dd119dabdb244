"""Orders with their payments within an hour: an inner join of two topics."""

from twofold import DataFrame, F, expression, table, to_postgres, unique


@table(
    owner="checkout",
    freshness="5 minutes",
    primary_key=["payment_id"],
    watermark="30 minutes",
    checks=[unique("payment_id"), expression("paid_at >= ordered_at")],
    outputs=[to_postgres()],
)
def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """One row per accepted payment whose order was at most an hour before it.

    paid_at: when the bank accepted the payment
    closes_at: an hour after the order, when a payment no longer counts
    """
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
