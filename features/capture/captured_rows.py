"""Computes rows of a captured table or of a compacted topic from changes: current rows, and their history.

Each is a function of the set of changes, in whatever order and however often they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from twofold.tables.declare.metadata_columns import LOG_OFFSET, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IS_CHANGE = "cdc_snapshot > 0"
"""Not of rows that a signal to Debezium reads again, which say nothing that the changes do not say."""


def latest_rows(changes: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Computes the current rows of the database: one for each key whose last change is no deletion.

    A large value that an update did not touch is the last one that the database sent, as is that of a column which was
    dropped or renamed since.

    Args:
        changes: the events of a topic declared by `changes_of`.
        key: the primary key of the table, and of the result.
        columns: the other columns of the result.
    """
    from pyspark.sql import functions as F

    known = {name: F.when(_holds(name), _order()) for name in columns}
    return _last(changes.where(_IS_CHANGE), key, _order(), F.col("cdc_op") == "delete", known)


def latest_values(records: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Computes the newest record of each key of a compacted topic, in log order; a tombstone removes the key.

    Args:
        records: the events of a topic declared with `compacted=True`.
        key: the column that holds the record's key, and the key of the result.
        columns: the other columns of the result.
    """
    from pyspark.sql import functions as F

    order = F.col(LOG_OFFSET)
    return _last(records, key, order, F.col(TOMBSTONE), dict.fromkeys(columns, order))


def _last(
    changes: DataFrame, key: Sequence[str], order: Column, is_deletion: Column, known: Mapping[str, Column]
) -> DataFrame:
    """Computes the rows of keys whose last change is no deletion.

    Args:
        known: column -> the order of the changes that hold its value, null for others.
    """
    from pyspark.sql import functions as F

    # In a struct, since max_by would pass over a null value.
    values = [F.max_by(F.struct(name), by).alias(name) for name, by in known.items()]
    last = changes.groupBy(*key).agg(F.max_by(is_deletion, order).alias("is_deleted"), *values)
    return last.where("NOT is_deleted").select(*key, *(F.col(f"{name}.{name}").alias(name) for name in known))


def history(changes: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Computes every version of a row in the database, valid from `valid_from` up to, not including, `valid_to`.

    Versions that the same transaction replaced are left out, since no other transaction saw them; so are changes that
    leave these columns as they were. Commits are in the order of the database's log; where its clock went back, the
    later one counts from the earlier one's time, and a row between the two is one of no time.

    The database had, at a mark with `cdc_lsn` L (see `changes_of`), the rows with `valid_from_lsn < L` and
    `valid_to_lsn` null or at least L: in all tables that are captured from it the same transactions.

    Args:
        changes: the events of a topic declared by `changes_of`.
        key: the primary key of the table.
        columns: the other columns of the row.

    Returns:
        The key, the columns, `valid_from`, `valid_to` (null: until now), `valid_from_lsn`, `valid_to_lsn` (the same as
        places in the database's log), `is_current`, `cdc_commit_lsn`. The key with `cdc_commit_lsn` identifies a row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # The first one after a snapshot has no commit before it. Numbers of transactions come again, at another time.
    streamed = F.col("cdc_lsn") > 0
    number, at = (F.when(streamed, F.col(name)) for name in ("cdc_transaction", "cdc_at"))
    transaction = (F.col("cdc_snapshot"), streamed, number, at)
    in_transaction = Window.partitionBy(*key, *transaction).orderBy(_order().desc())
    by_key = Window.partitionBy(*key).orderBy(_order())
    so_far = by_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    values = [
        F.last(F.when(_holds(name), F.struct(name)), ignorenulls=True).over(so_far).alias(f"cdc_last_{name}")
        for name in columns
    ]
    filled = changes.where(_IS_CHANGE).select(
        *key, "cdc_op", "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn", "cdc_at", "cdc_transaction", *values
    )
    committed = filled.withColumn("cdc_rank", F.row_number().over(in_transaction)).where("cdc_rank = 1")
    state = F.struct(F.col("cdc_op") == "delete", *(f"cdc_last_{name}" for name in columns))
    # Of a database that was restored later commits have lower places.
    from_now = by_key.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    least = committed.withColumn("cdc_least_lsn", F.min("cdc_commit_lsn").over(from_now))
    changed = least.withColumn("cdc_is_same", state.eqNullSafe(F.lag(state).over(by_key))).where("NOT cdc_is_same")
    since = changed.withColumn("valid_from", F.max("cdc_at").over(so_far))
    until = since.withColumn("valid_to", F.lead("valid_from").over(by_key))
    rows = until.withColumn("valid_to_lsn", F.lead("cdc_least_lsn").over(by_key)).where("cdc_op != 'delete'")
    return rows.select(
        *key,
        *(F.col(f"cdc_last_{name}.{name}").alias(name) for name in columns),
        "valid_from",
        "valid_to",
        F.col("cdc_least_lsn").alias("valid_from_lsn"),
        "valid_to_lsn",
        F.col("valid_to").isNull().alias("is_current"),
        "cdc_commit_lsn",
    )


def _order() -> Column:
    """Returns the order of the changes of a key: a snapshot precedes later changes, and all precede the next snapshot.

    A row that the snapshot has, accepted late, is there though a deletion was made for it.
    """
    from pyspark.sql import functions as F

    # The last two make the order total: they are what is left of what identifies a change.
    streamed, is_there = (F.col("cdc_lsn") > 0).alias("streamed"), (F.col("cdc_op") != "delete").alias("is_there")
    return F.struct("cdc_snapshot", streamed, "cdc_commit_lsn", "cdc_lsn", is_there, "cdc_op", "cdc_at")


def _holds(column: str) -> Column:
    """Whether a change holds the value of a column."""
    from pyspark.sql import functions as F

    lacked = F.split(F.coalesce("cdc_missing", F.lit("")), ", ")
    lacks = F.array_contains("cdc_unchanged", column) | F.array_contains(lacked, column)
    return (F.col("cdc_op") != "delete") & ~lacks
