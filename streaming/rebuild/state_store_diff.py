"""Compares the state of two checkpoints of one query, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tables.refresh.json_values import EXACT_JSON
from tables.refresh.row_diff import Difference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class StateComparison:
    """How one store of a lost state compares with the same one of a state that was made again.

    Attributes:
        store: the operator's number in the query, its name, and the side, where it is a join.
        partitions: of the store.
        batch: the micro-batch of the lost checkpoint after which both are compared, the newest whose state is readable
            in all partitions; None: none is.
        equal, missing, extra, changed: keys; missing are those that only the lost state has.
        examples: the first keys that differ: as they were, and as they should be.
    """

    store: str
    partitions: int
    batch: int | None = None
    equal: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    examples: Sequence[Difference] = ()

    @property
    def differing(self) -> int:
        """Keys."""
        return self.missing + self.extra + self.changed


def compare(spark: SparkSession, lost: Path, made: Path, numbers: Mapping[int, int]) -> list[StateComparison]:
    """Every store of the query, each as late as the lost one can be read.

    Args:
        numbers: micro-batch of the lost checkpoint -> the same micro-batch of the other.
    """
    stores = list(_stores(spark, made))
    spark.sparkContext.setLogLevel("OFF")  # each file that is missing would be logged with a stack trace of two pages
    try:
        return [_compare(spark, lost, made, numbers, store) for store in stores]
    finally:
        spark.sparkContext.setLogLevel("ERROR")


@dataclass(frozen=True, kw_only=True)
class _Store:
    name: str
    partitions: int
    options: Mapping[str, str]

    @property
    def is_side(self) -> bool:
        return self.options["storeName"].endswith("-keyWithIndexToValue")

    def read(self, spark: SparkSession, checkpoint: Path, batch: int) -> DataFrame:
        """One row per partition and key: `partition_id`, `key`, and its `values` in an order of their own, as JSON."""
        from pyspark.sql import functions as F

        rows = (
            spark.read.format("statestore").options(**self.options).option("batchId", str(batch)).load(str(checkpoint))
        )
        # A side of a join keeps several rows under one key, counted in the order in which they came.
        parts = [f for f in rows.select("key.*").columns if (self.is_side, f) != (True, "index")]
        key = F.struct(*(F.col("key")[part].alias(part) for part in parts))
        texts = rows.select(
            "partition_id", F.to_json(key, EXACT_JSON).alias("key"), F.to_json("value", EXACT_JSON).alias("value")
        )
        return texts.groupBy("partition_id", "key").agg(F.sort_array(F.collect_list("value")).alias("values"))


def _stores(spark: SparkSession, checkpoint: Path) -> Iterator[_Store]:
    metadata = spark.read.format("state-metadata").load(str(checkpoint)).orderBy("operatorId", "stateStoreName")
    for row in metadata.collect():
        name, stores = f"{row.operatorId} {row.operatorName}", {"": row.stateStoreName}
        if row.operatorName == "symmetricHashJoin":
            # The source's own view of a side, `joinSide`, leaves out whether a row has met one of the other side.
            stores = {f" {side}": f"{side}-keyWithIndexToValue" for side in ("left", "right")}
        for suffix, store in stores.items():
            options = {"operatorId": str(row.operatorId), "storeName": store}
            yield _Store(name=name + suffix, partitions=row.numPartitions, options=options)


def _compare(spark: SparkSession, lost: Path, made: Path, numbers: Mapping[int, int], store: _Store) -> StateComparison:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    for batch in sorted(numbers, reverse=True):
        should = store.read(spark, made, numbers[batch]).persist()
        try:
            should.count()
            try:
                before = store.read(spark, lost, batch).persist()
                before.count()
            except (PySparkException, Py4JError):
                continue  # a file of it is gone or damaged: an older one may be whole
            try:
                return _counted(store, batch, before, should)
            finally:
                before.unpersist()
        finally:
            should.unpersist()
    return StateComparison(store=store.name, partitions=store.partitions)


def _counted(store: _Store, batch: int, before: DataFrame, should: DataFrame) -> StateComparison:
    from pyspark.sql import functions as F

    both = before.withColumnRenamed("values", "before").join(
        should.withColumnRenamed("values", "should"), ["partition_id", "key"], "full_outer"
    )
    change = (
        F.when(F.col("before").isNull(), "extra")
        .when(F.col("should").isNull(), "missing")
        .when(F.col("before") != F.col("should"), "changed")
        .otherwise("equal")
    )
    changes = both.withColumn("change", change)
    counts = {row["change"]: row["count"] for row in changes.groupBy("change").count().collect()}
    examples = changes.where("change <> 'equal'").orderBy("partition_id", "key").limit(_NAMED).collect()
    return StateComparison(
        store=store.name,
        partitions=store.partitions,
        batch=batch,
        examples=[_difference(store.name, row.asDict()) for row in examples],
        **counts,
    )


def _difference(store: str, row: Mapping[str, object]) -> Difference:
    changes = {"extra": "insert", "missing": "delete", "changed": "update"}
    return Difference(
        key={"store": store, "partition": row["partition_id"], "key": row["key"]},
        change=changes[str(row["change"])],
        before={} if row["before"] is None else {"values": row["before"]},
        should={} if row["should"] is None else {"values": row["should"]},
    )
