"""The customers as the database had them: a slowly changing dimension."""

from tables import DataFrame, expression, history, table


@table(
    primary_key=["customer", "cdc_commit_lsn"],
    checks=[expression("valid_to IS NULL OR valid_to >= valid_from")],
)
def customer_history(customer_changes: DataFrame) -> DataFrame:
    """One row per customer and time for which the database had it so, from `valid_from` up to before `valid_to`."""
    return history(customer_changes, key=["customer"], columns=["country", "street", "moved_at"])
