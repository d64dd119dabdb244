"""Maintains tables by streaming queries over events: stateless, by latest version, or with state."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.infra.delta.delta_writer import CommitTag, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration
from twofold.infra.rows.rows import are_here
from twofold.infra.rows.sizes import REVISED, collected, is_small
from twofold.infra.spark.spark_session import tune_for_batch_size
from twofold.streaming.maintain.refresh_pace import Pace
from twofold.streaming.maintain.stream_fence import StreamFence
from twofold.streaming.maintain.table_stream import TableStream
from twofold.tables.declare.metadata_columns import REPLAYED
from twofold.tables.declare.table import Strategy, Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.derived_rows import (
    derive,
    first_of_each_on_stream,
    greatest_by,
    one_of_each_key,
    payload,
    repeats_agree_in,
    require_closing,
)
from twofold.tables.refresh.events.ingested_offsets import APPENDED_MS
from twofold.tables.refresh.streaming_checkpoint import MicroBatch, delta_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


_log = logging.getLogger("twofold.maintain")
_MOST_PARTITIONS = 2**31 - 1


class QueryDrivenStream(TableStream):
    """Keeps a table fresh by a streaming query of its own.

    The micro-batches of a checkpoint are numbered; a table stores the last number of each stream and applies none
    twice. A new checkpoint is a new stream: its first micro-batch is a snapshot of the inputs, whole and without a
    watermark, so that no row of it is late; it does not change rows that its predecessor had closed. A new definition
    of the table gets a new checkpoint.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._strategy = self.registry.strategy(self.table)
        self._fence = StreamFence(self._writer, self._require_one_definition, has_state=self._strategy.has_state)
        self._pace: Pace | None = None

    def start(self, *, available_now: bool, pace: Pace | None = None) -> StreamingQuery:
        """Starts the query; with `available_now` it ends once it has read all available rows.

        Args:
            pace: decides when the next micro-batch starts; None: whenever there is one.
        """
        self._begin_by_one_definition()
        has_state = self._strategy.has_state
        if not self._checkpoint.is_new and self._must_begin_again():
            self._checkpoint.set_aside()
            self._guard.record_watermark_once()
        writer, self._pace = self._query(), pace
        if self._checkpoint.is_new:
            first = snapshot(self.spark, self.lake, self._sources)
            self._hold(first.versions, rows=True)
            self._checkpoint.plan(0, first)
        if has_state:
            self._fence.claim(self._checkpoint.stream, self._guard)
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.lake.settings.table_trigger_ms} milliseconds").start()

    def start_planned(self) -> StreamingQuery:
        """Starts the query for the one micro-batch that the checkpoint has planned and that has not ended."""
        self._begin_by_one_definition()
        return self._query().trigger(once=True).start()

    def _must_begin_again(self) -> bool:
        """Whether the stream cannot continue from its checkpoint and must begin from a snapshot of its inputs."""
        # Open rows that another stream has written since may be of records which this one counted long ago.
        if self._strategy.has_state and self._fence.is_of_another(self._checkpoint.stream):
            _log.warning("begins again table=%s: another stream went on", self.table.full_name)
            return True
        for source, version in zip(self._sources, self._checkpoint.first_unread(), strict=False):
            name = source.full_name
            if version <= self.lake.version(name) and not self.lake.has_version(name, version):
                _log.warning("begins again table=%s: cleaned log of %s from=%d", self.table.full_name, name, version)
                return True
        return False

    def _query(self) -> DataStreamWriter:
        frame, mode = self._derived_with_state() if self._strategy.has_state else (self._derived(), "append")
        self._require_order(frame)
        writer: DataStreamWriter = (
            frame.writeStream.queryName(self.table.full_name)
            .outputMode(mode)
            .option("checkpointLocation", str(self._checkpoint.path))
            .foreachBatch(self._batch)
        )
        return writer

    def _require_order(self, frame: DataFrame) -> None:
        """Refuses a function that reads its inputs in another order than its parameters, whose order offsets follow.

        Raises:
            BadDeclaration: names both orders.
        """
        names = {self.lake.uri(source.full_name): source.name for source in self._sources}
        read = [names[path] for path in _paths_in_offset_order(frame)]
        if read != list(names.values()):
            raise BadDeclaration(
                f"tables/{self.table.domain}/{self.table.name}.py: {self.table.derive.__name__} reads "
                f"{', '.join(read)}; expected the order of its parameters, {', '.join(names.values())}.",
                hint="Give the parameters the order in which the function joins them.",
            )

    def _events(self, topic: Topic) -> DataFrame:
        """Reads an events table as a stream: a snapshot, then the rows that its commits append, in order."""
        return (
            self.spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", self.lake.settings.max_files)
            .load(self.lake.uri(topic.full_name))
            .where(f"NOT {REPLAYED}")
        )

    def _derived(self) -> DataFrame:
        inputs = {s.name: payload(self._events(s), s, self.table) for s in self._sources if isinstance(s, Topic)}
        return derive(self.table, self._by_parameter(inputs))

    def _derived_with_state(self) -> tuple[DataFrame, str]:
        """Returns the rows and the output mode: `update` revises open rows; joins and sessions must append."""
        rows = self._counting_until(self.table.depends_within_ms or 0)
        steps = list(_steps(_analyzed(rows)))
        if any(step.nodeName() == "Join" for step in steps):
            # A join drops rows that the watermark has passed: a longer memory would be useless.
            return self._counting_until(0), "append"
        groups = [step.groupingExpressions().mkString(",") for step in steps if step.nodeName() == "Aggregate"]
        return rows, "update" if groups and not any("session_window#" in group for group in groups) else "append"

    def _counting_until(self, open_ms: int) -> DataFrame:
        delay_ms = self.table.watermark_ms
        inputs = {}
        for topic in self._sources:
            if isinstance(topic, Topic):
                same = repeats_agree_in(topic, self.table)
                events = first_of_each_on_stream(self._marked(topic), topic, same, delay_ms=delay_ms, open_ms=open_ms)
                inputs[topic.name] = payload(events, topic, self.table)
        return derive(self.table, self._by_parameter(inputs))

    def _marked(self, topic: Topic) -> DataFrame:
        events = self._guard.reached_by(self._events(topic), topic)
        return events.withWatermark(topic.event_time, f"{self.table.watermark_ms} milliseconds")

    def _by_parameter(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {p: inputs[s.name] for p, s in zip(self.table.inputs, self._sources, strict=True)}

    def _batch(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        self._require_one_definition(self._writer.newest())
        split = zip(self._sources, self._checkpoint.split_versions(batch), strict=True)
        parts = {source.full_name: version for source, version in split if version is not None}
        if self._strategy.has_state:
            for name, version in parts.items():
                self._checkpoint.splits.add(name, version)
        if batch:
            self._hold(self._checkpoint.next_versions(batch - 1))
        rows_in, versions = self._consumed(batch)
        # This micro-batch is planned already: its size predicts that of the next.
        tune_for_batch_size(frame.sparkSession, few=is_small(self.lake.settings, rows_in))
        watermark_ms = self._checkpoint.watermark_ms(batch)
        appended_ms = self._appended_ms(versions, is_first=batch == 0)
        info = {
            "cause": "stream",
            "batch": batch,
            "versions": versions,
            **({"parts": list(parts)} if parts else {}),
            "watermark_ms": watermark_ms,
            **({} if appended_ms is None else {APPENDED_MS: appended_ms}),
            **self._code,
        }
        written = self._write(frame, batch, info, rows_in)
        self._note(batch, rows_in, written, versions, watermark_ms, started, appended_ms)
        if self._pace is not None:
            self._pace.settle(self.table, self._sources, list(versions.values()), time.monotonic() - started)

    def _write(self, frame: DataFrame, batch: int, info: Mapping[str, object], rows_in: int) -> Written:
        how: dict[str, Any] = {"keep": True} if self._strategy is Strategy.APPEND else {}
        if self.table.sequence_by:
            how = {"greatest": greatest_by(self.table, frame.columns)}
        if not self._strategy.has_state:
            rows = one_of_each_key(frame, self.table, self._strategy)
            return self._upsert(collected(rows) if is_small(self.lake.settings, rows_in) else rows, batch, info, **how)
        frame = one_of_each_key(self._guard.beyond(frame), self.table, self._strategy)
        # A frame with state must be computed whole, and once: a limit would leave partitions of the state behind.
        if is_small(self.lake.settings, rows_in, REVISED):
            rows = collected(frame)
            if are_here(rows):
                require_closing(self.table, rows)
                return self._upsert(rows, batch, info, **how)
        # Spark may claim an order by a column that these rows lack, and then cannot read them from its cache. Coalesced
        # into more partitions than there are, no row is moved and no order is claimed.
        frame = frame.coalesce(_MOST_PARTITIONS).persist()
        try:
            return self._upsert(frame, batch, info, **how) if frame.count() else Written()
        finally:
            frame.unpersist()

    def _upsert(self, rows: pa.Table | DataFrame, batch: int, info: Mapping[str, object], **how: Any) -> Written:
        """Commits a micro-batch, once."""
        if are_here(rows) and not len(rows):
            return Written()
        stream = self._checkpoint.stream

        def write(stamp: CommitTag) -> Written:
            return self._writer.upsert(rows, self.table.primary_key, stamp, **how)

        return self._fence.commit(stream, batch, info, write)

    def _consumed(self, batch: int) -> tuple[int, dict[str, int]]:
        """Returns the number of rows that the micro-batch read, and the next version of each input."""
        rows = 0
        versions: dict[str, int] = {}
        starts = self._checkpoint.next_versions(batch - 1) or [0] * len(self._sources)
        for source, start, end in zip(self._sources, starts, self._checkpoint.next_versions(batch), strict=True):
            versions[source.full_name] = end
            if start == 0 and end:
                rows += int(self.lake.open(source.full_name, end - 1).count())
            else:
                commits = self.lake.commits(source.full_name, start - 1, end - 1)
                rows += sum(added.rows or 0 for commit in commits if commit.changes for added in commit.added)
        return rows, versions


def _paths_in_offset_order(stream: DataFrame) -> list[str]:
    """Returns the path of each Delta table that a streaming frame reads, in the order of its offsets.

    Spark numbers the sources of a query by the leaves of its analyzed plan, one that is read twice by the first of
    them, and a checkpoint keeps offsets by these numbers alone. No public method of Spark says the order before the
    query runs, when offsets of one table would already have been taken for those of another.
    """
    leaves = _items(_analyzed(stream).collectLeaves())
    return list(dict.fromkeys(leaf.dataSource().options().apply("path") for leaf in leaves))


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _steps(plan: Any) -> Iterator[Any]:
    """Yields the nodes of a Spark plan; node names, unlike the plan's text, hold no text of the query."""
    yield plan
    for child in _items(plan.children()):
        yield from _steps(child)


def _items(sequence: Any) -> list[Any]:
    """Returns the items of a sequence of Scala."""
    return [sequence.apply(n) for n in range(sequence.size())]


def snapshot(spark: SparkSession, lake: Lake, sources: Sequence[Topic | Table]) -> MicroBatch:
    """Returns the first micro-batch of a stream: all current rows of its inputs."""
    return MicroBatch(
        ends=ends(lake, sources, [lake.version(s.full_name) + 1 for s in sources]), settings=state_settings(spark)
    )


def ends(lake: Lake, sources: Sequence[Topic | Table], versions: Sequence[int]) -> list[Mapping[str, object] | None]:
    """Returns the stream offsets at which all commits below these versions were read."""
    ids = [str(lake.open(source.full_name).metadata().id) for source in sources]
    return [delta_offset(table_id, version) for table_id, version in zip(ids, versions, strict=True)]


def state_settings(spark: SparkSession) -> dict[str, str]:
    """Returns the session's settings that Spark stores in a checkpoint."""
    checkpointing = spark._jvm.org.apache.spark.sql.execution.streaming.checkpointing  # type: ignore[union-attr]
    about = checkpointing.OffsetSeqMetadata.apply(0, 0, spark._jsparkSession.conf())
    settings: dict[str, str] = json.loads(about.json())["conf"]
    partitions = "spark.sql.shuffle.partitions"  # a running query takes it from a setting that only queries have
    return {**settings, partitions: str(spark.conf.get(partitions))}
