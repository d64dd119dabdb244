"""The street to which each shipment went: the customer's when the shipment was made."""

from twofold import DataFrame, F, not_null, table


@table(primary_key=["shipment_id"], checks=[not_null("street")])
def shipped_to(shipment_changes: DataFrame, customer_history: DataFrame) -> DataFrame:
    """One row per shipment that was ever made, also of those that were cancelled.

    street: what the database had at the commit that made the shipment, whatever it has now
    """
    made = (
        shipment_changes.where("cdc_op = 'insert'")
        .groupBy("customer", "shipment_id")
        .agg(F.min("cdc_at").alias("made_at"), F.min_by("order_id", F.struct("cdc_at", "order_id")).alias("order_id"))
    )
    m, h = made.alias("m"), customer_history.alias("h")
    is_valid = (F.col("m.made_at") >= F.col("h.valid_from")) & (
        F.col("h.valid_to").isNull() | (F.col("m.made_at") < F.col("h.valid_to"))
    )
    return m.join(h, (F.col("m.customer") == F.col("h.customer")) & is_valid, "left").select(
        "m.shipment_id", "m.order_id", "m.customer", "h.street"
    )
