"""Orders and payments, also those that never met: a full outer join of two topics."""

from twofold import DataFrame, F, expression, one_of, table


@table(
    owner="checkout",
    primary_key=["order_id", "payment_id"],
    watermark="30 minutes",
    lineage_columns=["ordered_record", "paid_record"],
    checks=[
        one_of("outcome", ["paid", "not paid", "no order"]),
        expression("outcome = 'no order' OR cents IS NOT NULL"),
    ],
)
def settlements(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """One row per accepted payment with its order of the hour before, and per order or payment that found no other.

    order_id: the order, or the one that the payment names
    outcome: paid, not paid (an order without a payment) or no order (a payment without its order)
    happened_at: when it was ordered, else when it was paid
    paid_at: when the bank accepted the payment
    closes_at: an hour later, when nothing that comes can still meet it
    ordered_record: the log record of the order
    paid_record: the log record of the payment
    """
    o, p = orders.alias("o"), payments.where("outcome = 'accepted'").alias("p")
    hour = F.expr("INTERVAL 1 HOUR")
    happened_at = F.coalesce("o.ordered_at", "p.tried_at")
    without_order, without_payment = F.col("o.order_id").isNull(), F.col("p.order_id").isNull()
    return o.join(
        p,
        (F.col("o.order_id") == F.col("p.order_id"))
        & (F.col("p.tried_at") >= F.col("o.ordered_at"))
        & (F.col("p.tried_at") <= F.col("o.ordered_at") + hour),
        "full",
    ).select(
        F.coalesce("o.order_id", "p.order_id").alias("order_id"),
        "p.payment_id",
        F.when(without_order, "no order").when(without_payment, "not paid").otherwise("paid").alias("outcome"),
        "o.cents",
        happened_at.alias("happened_at"),
        F.col("p.tried_at").alias("paid_at"),
        (happened_at + hour).alias("closes_at"),
        F.col("o.record").alias("ordered_record"),
        F.col("p.record").alias("paid_record"),
    )
