"""Analyzes a query once, and runs it over other rows of this process each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.infra.rows.rows import in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INPUT = "twofold.input"
"""The metadata of a column that names the input which it belongs to."""


class PlanTemplate:
    """A query whose inputs are rows of this process.

    Each operation on a frame takes several calls of the JVM and an analysis of the plan so far: for small inputs more
    than the query itself. Here, as in Structured Streaming, the analyzed plan stays and its leaves are replaced.

    Args:
        spark: a session with a JVM in this process.
        schemas: of the inputs.
        build: a frame for each input -> the query's result.
    """

    def __init__(
        self, spark: SparkSession, schemas: Sequence[pa.Schema], build: Callable[[Sequence[DataFrame]], DataFrame]
    ) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._plan = _analyzed(build([_placeholder(spark, n, schema) for n, schema in enumerate(schemas)]))
        plans = [self._plan, *_sequence(self._plan.subqueriesAll())]
        leaves = [(leaf, _number(leaf)) for plan in plans for leaf in _sequence(plan.collectLeaves())]
        self._placeholders = [(leaf, number) for leaf, number in leaves if number is not None]

    def over(self, inputs: Sequence[pa.Table]) -> DataFrame:
        """Returns the query's result for these rows."""
        from pyspark.sql.classic.dataframe import DataFrame

        rows = [_analyzed(in_spark(self._spark, table)) for table in inputs]
        # A map is a partial function: the plan is transformed without a callback into this process.
        leaves = _object(self._jvm.scala.collection.immutable, "Map$").empty()
        for placeholder, number in self._placeholders:
            leaves = leaves.updated(placeholder, self._leaf(placeholder, rows[number]))
        plan, datasets = self._plan.transformUpWithSubqueries(leaves), self._jvm.org.apache.spark.sql.classic
        return DataFrame(_object(datasets, "Dataset$").ofRows(self._spark._jsparkSession, plan), self._spark)

    def _leaf(self, placeholder: Any, rows: Any) -> Any:
        """Creates a leaf with these rows under the attributes of the placeholder."""
        none, sql = _object(self._jvm.scala, "None$"), self._jvm.org.apache.spark.sql
        if rows.nodeName() == "LocalRelation":
            return sql.catalyst.plans.logical.LocalRelation(placeholder.output(), rows.data(), False, none)
        return sql.execution.LogicalRDD(
            placeholder.output(),
            rows.rdd(),
            rows.outputPartitioning(),
            rows.outputOrdering(),
            False,
            none,
            self._spark._jsparkSession,
            none,
            none,
        )


def has_jvm(spark: SparkSession) -> bool:
    """Whether the session's JVM belongs to this process, unlike that of a Connect server."""
    return hasattr(spark, "_jsparkSession")


def _placeholder(spark: SparkSession, number: int, schema: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(f.name, f.dataType, f.nullable, {_INPUT: number}) for f in from_arrow_schema(schema)]
    return spark.createDataFrame(schema.empty_table(), StructType(fields))


def _number(leaf: Any) -> int | None:
    """Returns the input that a leaf stands for; None for any other leaf.

    A reference to a common table expression has the metadata, too.
    """
    if leaf.nodeName() != "LocalRelation":
        return None
    metadata = [attribute.metadata() for attribute in _sequence(leaf.output())]
    return next((int(fields.getLong(_INPUT)) for fields in metadata if fields.contains(_INPUT)), None)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _sequence(items: Any) -> list[Any]:
    return [items.apply(n) for n in range(items.size())]


def _object(package: Any, name: str) -> Any:
    """Returns a singleton of Scala."""
    return getattr(getattr(package, name), "MODULE$")
