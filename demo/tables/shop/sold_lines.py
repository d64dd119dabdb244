"""The sales of each product in an hour, by the lines of the orders."""

from twofold import DataFrame, F, table


@table(watermark="30 minutes")
def sold_lines(orders: DataFrame) -> DataFrame:
    """One row per product of a line and hour: its lines, their prices, and the greatest of the lines that have one.

    line: product of the line
    product: product of the order
    hour: start of the hour
    closes_at: end of the hour
    lines: lines with a price
    total: sum of their prices, euros
    greatest: price, in euros, and wishes of the dearest line
    """
    lines = orders.select("product", "ordered_at", F.explode("lines").alias("line")).where("line.price IS NOT NULL")
    return (
        lines.groupBy("product", F.col("line.product").alias("line"), F.window("ordered_at", "1 hour"))
        .agg(
            F.count("*").alias("lines"),
            F.sum("line.price").alias("total"),
            F.max(F.struct("line.price", "line.wishes")).alias("greatest"),
        )
        .select(
            "line",
            "product",
            F.col("window.start").alias("hour"),
            F.col("window.end").alias("closes_at"),
            "lines",
            "total",
            "greatest",
        )
    )
