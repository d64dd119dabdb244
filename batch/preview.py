"""Computes the rows of a declaration from ingested records, without a table of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.derived_rows import derive_over, one_of_each_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.delta.lake import Lake


def preview(spark: SparkSession, lake: Lake, registry: Registry, table: Table) -> DataFrame:
    """Computes the rows that the table would have now; inputs that do not exist are computed, too.

    Raises:
        BadArgument: nothing of a topic was ingested yet.
        BadDeclaration: the function does not fit its inputs or its own declaration.
    """
    rows = derive_over(registry, table, lambda source: _rows(spark, lake, registry, source))
    return one_of_each_key(rows, table, registry.strategy(table))


def _rows(spark: SparkSession, lake: Lake, registry: Registry, source: Topic | Table) -> DataFrame:
    if lake.exists(source.full_name):
        return lake.frame(spark, source.full_name)
    if isinstance(source, Table):
        return preview(spark, lake, registry, source)
    raise BadArgument(
        f"Nothing of {source.full_name} was ingested yet.",
        hint=f"`{COMMAND} up` starts its stream; send some records, then try again.",
    )
