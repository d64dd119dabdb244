"""Payments that the provider gave back, in part or as a whole."""

from twofold import DataFrame, F, between, table


@table(checks=[between("cents", 1, None)])
def refunded_payments(refund_notices: DataFrame) -> DataFrame:
    """One row per payment with refunds.

    cents: of all its refunds
    refunded_at: the time of the last one
    refunds: number of its refunds
    """
    return refund_notices.groupBy("payment_id").agg(
        F.sum("cents").alias("cents"), F.count("*").alias("refunds"), F.max("refunded_at").alias("refunded_at")
    )
