"""Orders from another country than a login of the same customer minutes before."""

from twofold import DataFrame, F, expression, table, to_topic


@table(
    primary_key=["order_id", "login_id"],
    watermark="30 minutes",
    lineage_columns=["login_record", "ordered_record"],
    checks=[expression("login_country <> order_country")],
    outputs=[to_topic("orders_abroad")],
)
def foreign_orders(logins: DataFrame, orders: DataFrame) -> DataFrame:
    """One row per order and login of its customer in another country, at most five minutes before it.

    login_record: the log record of the login
    ordered_record: the log record of the order
    login_country: country of the login, ISO code
    order_country: country to which the order is sent, ISO code
    closes_at: five minutes after the login, when an order no longer counts
    """
    n, o = logins.alias("n"), orders.alias("o")
    within = F.col("n.logged_in_at") + F.expr("INTERVAL 5 MINUTES")
    return n.join(
        o,
        (F.col("n.customer") == F.col("o.customer"))
        & (F.col("n.country") != F.col("o.country"))
        & (F.col("o.ordered_at") >= F.col("n.logged_in_at"))
        & (F.col("o.ordered_at") <= within),
    ).select(
        "o.order_id",
        "n.login_id",
        "o.customer",
        F.col("n.country").alias("login_country"),
        F.col("o.country").alias("order_country"),
        "n.logged_in_at",
        "o.ordered_at",
        within.alias("closes_at"),
        F.col("n.record").alias("login_record"),
        F.col("o.record").alias("ordered_record"),
    )
