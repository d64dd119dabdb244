"""The tables by plain Structured Streaming, as one would write it first, in a process of its own; results in Delta."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peers.domains import registry_of
from peers.engine_process import Task, drain, until_stopped
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.declare.functions.event_patterns import RECORD as RECORD_TYPE
from twofold.tables.declare.inference import RECORD
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import events_schema

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REVISED = frozenset({"delays_by_hour", "busiest_routes", "q7_highest_bids", "q17_auction_days"})
"""Tables of windows, whose rows a MERGE revises; of all others a row is written once, when it is final."""
UNBOUNDED = "4 seconds"  # the watermark of a table without one, for the deduplication


def events(spark: SparkSession, topic: Topic, table: Table, task: Task, max_offsets: int) -> DataFrame:
    """A topic's records, parsed, with a watermark, a record that was sent twice counted once."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    declared = (field for field in from_arrow_schema(events_schema(topic)) if not field.name.startswith("_"))
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in declared)
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", topic.full_name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets)
        .load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("r"))
        .select("r.*")
        .withWatermark(topic.event_time, table.watermark if table.closes_at else UNBOUNDED)
        .dropDuplicates(list(topic.same_record))
    )
    return rows.withColumn(RECORD, F.lit(None).cast(RECORD_TYPE)) if table.lineage_columns else rows


def start(spark: SparkSession, table: Table, task: Task, max_offsets: int) -> StreamingQuery:
    """The query of a table: the rows of a join are appended, windows are merged by `foreachBatch`."""
    from delta.tables import DeltaTable

    sources = registry_of(task.tables).topics_of(table)
    inputs = {source.name: events(spark, source, table, task, max_offsets) for source in sources}
    rows = table.derive(**inputs).drop(*(table.lineage_columns or ()))
    place = str(task.home / table.name)
    writer = rows.writeStream.option("checkpointLocation", str(task.home / "checkpoints" / table.name))
    writer = writer.trigger(availableNow=True) if task.rounds else writer
    if table.name not in REVISED:
        return writer.format("delta").outputMode("append").start(place)
    spark.createDataFrame([], rows.schema).write.format("delta").save(place)
    merge = _merging(DeltaTable.forPath(spark, place), table)
    return writer.outputMode("update").foreachBatch(merge).start()


def _merging(target: DeltaTable, table: Table) -> Callable[[DataFrame, int], None]:
    same = " AND ".join(f"t.{column} = s.{column}" for column in table.primary_key)

    def merge(rows: DataFrame, _: int) -> None:
        merger = target.alias("t").merge(rows.alias("s"), same)
        merger.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return merge


def main() -> None:
    task, settings = Task.from_arguments(), Settings.from_environment()
    spark = session(settings, "plain")
    tables = [registry_of(task.tables).find_table(name) for name in task.tables]

    def all_started() -> list[StreamingQuery]:
        return [start(spark, table, task, settings.max_offsets) for table in tables]

    if task.rounds:
        drain(task, lambda: [query.awaitTermination() for query in all_started()])
    else:
        queries = all_started()
        until_stopped(lambda: all(query.isActive for query in queries))
        for query in queries:
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
