"""A query that was analyzed once returns for any rows what it returns when it is written for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from twofold.infra.spark.plan_template import PlanTemplate, has_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [("key", pa.string()), pa.field("value", pa.int64(), nullable=False), ("items", pa.list_(pa.int32()))]
)
MANY = 20_000  # more bytes than a plan may hold


def rows(count: int) -> pa.Table:
    columns = [[f"k{n % 7}" for n in range(count)], list(range(count)), [[n] for n in range(count)]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def joined(inputs: Sequence[DataFrame]) -> DataFrame:
    """Totals with the rows of the same input, and with those of another one of the same schema, if there are some."""
    from pyspark.sql import functions as F

    left, right = (frame.coalesce(1) for frame in inputs)
    totals = left.groupBy("key").agg(F.sum("value").alias("total"))
    again = left.select(F.col("key").alias("same"), "value", F.size("items").alias("size"))
    other = right.groupBy(F.col("key").alias("other")).agg(F.count("*").alias("others"))
    own = left.sparkSession.createDataFrame([("k1", "one")], "name string, word string")
    return (
        totals.join(again, F.expr("key = same"))
        .join(other, F.expr("key = other"), "left")
        .join(own, F.expr("key = name"), "left")
    )


@pytest.mark.parametrize(("left", "right"), [(5, 3), (4, 0), (0, 2), (MANY, 9), (9, MANY)])
def test_a_template_returns_what_the_query_over_its_inputs_returns(spark: SparkSession, left: int, right: int) -> None:
    template = PlanTemplate(spark, [SCHEMA, SCHEMA], joined)
    for counts in ((3, 8), (left, right)):
        tables = [rows(count) for count in counts]
        found = template.over(tables).toArrow()
        expected = joined([spark.createDataFrame(table) for table in tables]).toArrow()
        assert found.schema == expected.schema
        order = [("value", "ascending")]
        assert found.sort_by(order) == expected.sort_by(order)
        assert len(found) == counts[0]


def test_no_rows_come_in_no_batches(spark: SparkSession) -> None:
    """As of a file that has no row of a scope: Spark makes no frame of a nested column in no chunk."""
    template = PlanTemplate(spark, [SCHEMA], lambda inputs: inputs[0].where("size(items) > 0"))
    assert template.over([pa.Table.from_batches([], SCHEMA)]).toArrow().to_pylist() == []


def chosen(inputs: Sequence[DataFrame]) -> DataFrame:
    """Rows chosen by subqueries of each kind, one of them within another."""
    left, right = inputs
    return left.sparkSession.sql(
        """
        WITH least AS (SELECT key, min(value) AS value FROM {right} GROUP BY key)
        SELECT own.key, own.value, (SELECT count(*) FROM {right}) AS others, last.value AS last
        FROM {left} AS own, LATERAL (SELECT max(value) AS value FROM {right} AS o WHERE o.key = own.key) AS last
        WHERE own.value IN (SELECT value FROM least WHERE value >= (SELECT min(value) FROM {left}))
            AND EXISTS (SELECT * FROM least WHERE least.key = own.key)
        """,
        left=left,
        right=right,
    )


def test_rows_of_subqueries_are_replaced_too(spark: SparkSession) -> None:
    template = PlanTemplate(spark, [SCHEMA, SCHEMA], chosen)
    for left, right, expected in (
        (2, 9, [("k0", 0, 9, 7), ("k1", 1, 9, 8)]),
        (9, 8, [(f"k{n}", n, 8, 7 if n == 0 else n) for n in range(7)]),
        (3, 1, [("k0", 0, 1, 0)]),
        (3, 0, []),
    ):
        found = template.over([rows(left), rows(right)]).toArrow().to_pylist()
        assert sorted((r["key"], r["value"], r["others"], r["last"]) for r in found) == expected


def test_a_session_of_this_process_has_a_jvm(spark: SparkSession) -> None:
    assert has_jvm(spark)
