"""Where each shipment went: the customer's street as of the commit that made the shipment."""

from __future__ import annotations

from tables import DataFrame, F, table


@table(primary_key=["shipment_id"], recompute_by=["customer"])
def shipped_to(shipment_changes: DataFrame, customer_changes: DataFrame) -> DataFrame:
    """One row per shipment that was ever made, also of those that were cancelled.

    street: what the database had when it made the shipment, whatever it has now; null when the customer was not known
    """
    order = ("cdc_commit_lsn", "cdc_lsn")
    made = (
        shipment_changes.where("cdc_op = 'insert'")
        .groupBy("customer", "shipment_id")
        .agg(F.min_by(F.struct("order_id", *order), F.struct(*order)).alias("made"))
    )
    m, c = made.alias("m"), customer_changes.alias("c")
    known = (F.col("m.customer") == F.col("c.customer")) & (F.col("c.cdc_commit_lsn") <= F.col("m.made.cdc_commit_lsn"))
    latest = F.max_by(F.struct("c.street"), F.struct(*(f"c.{column}" for column in order)))
    return (
        m.join(c, known, "left")
        .groupBy("m.shipment_id", "m.customer", "m.made.order_id")
        .agg(latest.alias("latest"))
        .select("shipment_id", "order_id", "customer", F.col("latest.street").alias("street"))
    )
