"""The customers as the database has them: its copy, without asking it."""

from twofold import DataFrame, latest_rows, not_null, table


@table(owner="customer care", checks=[not_null("country")])
def customers(customer_changes: DataFrame) -> DataFrame:
    """One row per customer."""
    columns = ["country", "street", "moved_at", "last_login", "mail_domain"]
    return latest_rows(customer_changes, key=["customer"], columns=columns)
