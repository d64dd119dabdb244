"""The customers as the database had them: a slowly changing dimension."""

from twofold import DataFrame, expression, history, table


@table(
    primary_key=["customer", "cdc_commit_lsn"],
    checks=[expression("valid_to IS NULL OR valid_to >= valid_from")],
)
def customer_history(customer_changes: DataFrame) -> DataFrame:
    """One row per customer and time for which the database had it so, from `valid_from` up to before `valid_to`.

    valid_from: since when the database had it so
    valid_to: until when; null: until now
    valid_from_lsn, valid_to_lsn: the same in positions of the database's log
    is_current: whether the database has it so now
    """
    return history(customer_changes, key=["customer"], columns=["country", "street", "moved_at"])
