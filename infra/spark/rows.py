"""Rows, in this process or in Spark where they may be many, and what can be done with them wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import TypeIs

    Rows: TypeAlias = pa.Table | DataFrame


def are_here(rows: Rows) -> TypeIs[pa.Table]:
    """Whether the rows are in this process."""
    return isinstance(rows, pa.Table)


def here(rows: Rows) -> pa.Table:
    """The rows in this process."""
    return rows if are_here(rows) else rows.toArrow()


def in_spark(spark: SparkSession, rows: Rows) -> DataFrame:
    """The rows in Spark, also where there are none, which through Connect take no schema from Arrow."""
    if not are_here(rows):
        return rows
    if len(rows):
        return spark.createDataFrame(rows)
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame([], from_arrow_schema(rows.schema))


def count(rows: Rows) -> int:
    """How many rows there are."""
    return len(rows) if are_here(rows) else rows.count()


def is_empty(rows: Rows) -> bool:
    """Whether there is no row."""
    return not len(rows) if are_here(rows) else rows.isEmpty()


def column_names(rows: Rows) -> list[str]:
    """The names of the columns, in order."""
    return list(rows.column_names if are_here(rows) else rows.columns)
