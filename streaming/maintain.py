"""Events to tables: one query per table, by the strategy that its declaration calls for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.spark import suit_to_rows
from streaming.progress import Progress, write
from tables.checkpoint import Checkpoint
from tables.declaration import Table, Topic
from tables.decode import OFFSET, REPLAYED
from tables.derive import derive, first_of_each, latest_of_each, payload, version_columns
from tables.fingerprint import fingerprint, require_one_definition
from tables.lake import Lake
from tables.refresh import Refresher
from tables.registry import Registry
from tables.scope import from_epoch_ms, merged, scopes_of, time_column
from tables.writer import BEFORE, CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TIDY_EVERY = 100
_SOURCE = "_source"
_AT = "_at"
_NEW_DEFINITION = "definition"
_log = logging.getLogger("twofold.maintain")


@dataclass
class Maintain:
    """Keeps one table fresh.

    The micro-batches of a checkpoint are numbered; a table remembers the last number of each stream and takes none
    twice. A new checkpoint is another stream: it reads its inputs from the beginning and leaves alone what its
    predecessor had closed, so that corrections stand. A new definition of the table gets a new checkpoint.
    """

    spark: SparkSession
    lake: Lake
    registry: Registry
    table: Table
    _commits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        settings = self.lake.settings
        self._checkpoint = Checkpoint.of(settings, self.table)
        self._writer = Writer(self.lake, self.table.full_name, self.spark)
        self._sources = self.registry.upstream(self.table)
        self._strategy = self.registry.strategy(self.table)
        self._fingerprint = fingerprint(self.table)
        self._refresher = Refresher(self.spark.newSession(), self.lake, self.registry, self.table)
        self._scope_columns: dict[int, list[str]] = {}
        self._fence = _Fence(self._checkpoint, self.lake, self.table)

    def start(self, *, available_now: bool) -> StreamingQuery:
        """Start the query; with `available_now` it ends when it has read what is there."""
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        self._begin_by_one_definition()
        plan: dict[str, Callable[[], DataFrame]] = {
            "append": self._derived,
            "latest": self._derived,
            "stateful": self._derived_with_state,
            "touched": self._touched,
        }
        frame = plan[self._strategy]()
        writer: DataStreamWriter = (
            frame.writeStream.queryName(self.table.full_name)
            .outputMode(_output_mode(frame) if self._strategy == "stateful" else "append")
            .option("checkpointLocation", str(self._checkpoint.path))
            .foreachBatch(self._batch)
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        every_ms = self.table.every_ms or self.lake.settings.table_trigger_ms
        return writer.trigger(processingTime=f"{every_ms} milliseconds").start()

    def _begin_by_one_definition(self) -> None:
        """Leave a checkpoint of another definition: what its stream kept, counts and half-joined rows, is of that one.

        The new stream reads its inputs from the beginning. Rows that were closed have been computed anew by whoever
        accepted the new definition; those that were open are taken out here, since this stream writes them again.
        """
        require_one_definition(self.lake, self.table)
        before = self._checkpoint.definition
        if before != self._fingerprint and not self._checkpoint.is_new:
            self._checkpoint.note_definition(before or "unknown")
            self._checkpoint.set_aside()
        self._fence.raise_once()
        if self._checkpoint.definition not in ("", self._fingerprint):
            self._fence.take_out_open(self._writer)
        self._checkpoint.note_definition(self._fingerprint)

    def _events(self, topic: Topic) -> DataFrame:
        """New rows of an events table, in the order of its commits."""
        return (
            self.spark.readStream.format("delta")
            .option("startingVersion", 0)
            .option("skipChangeCommits", "true")
            .option("maxFilesPerTrigger", self.lake.settings.max_files)
            .load(self.lake.uri(topic.full_name))
            .where(f"NOT {REPLAYED}")
        )

    def _derived(self) -> DataFrame:
        inputs = {s.name: payload(self._events(s)) for s in self._sources if isinstance(s, Topic)}
        return derive(self.table, self._by_parameter(inputs))

    def _derived_with_state(self) -> DataFrame:
        inputs = {
            s.name: payload(
                first_of_each(self._events(s).withWatermark(s.event_time, f"{self.table.watermark_ms} milliseconds"), s)
            )
            for s in self._sources
            if isinstance(s, Topic)
        }
        return derive(self.table, self._by_parameter(inputs))

    def _by_parameter(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {p: inputs[s.name] for p, s in zip(self.table.inputs, self._sources, strict=True)}

    def _touched(self) -> DataFrame:
        """What changed in the inputs: their `recompute_by` columns and event time, old values and new."""
        from pyspark.sql import functions as F

        parts = []
        for number, source in enumerate(self._sources):
            frame = (
                self.spark.readStream.format("delta")
                .option("readChangeFeed", "true")
                .option("startingVersion", 0)
                .option("maxFilesPerTrigger", self.lake.settings.max_files)
                .load(self.lake.uri(source.full_name))
            )
            if isinstance(source, Topic):
                frame = frame.where(f"{OFFSET} IS NOT NULL")
            at = time_column(source)
            self._scope_columns[number] = [c for c in self.table.recompute_by if c in frame.columns]
            parts.append(
                frame.select(
                    F.lit(number).alias(_SOURCE),
                    (F.col(at).cast("timestamp") if at else F.lit(None).cast("timestamp")).alias(_AT),
                    *(F.col(c) for c in self._scope_columns[number]),
                )
            )
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)

    def _batch(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        if self._strategy == "stateful":
            for source, split in zip(self._sources, self._checkpoint.split_versions(batch), strict=True):
                if split is not None:
                    self._checkpoint.splits.add(source.full_name, split)
        rows_in, versions = self._consumed(batch)
        # This micro-batch is planned already: its size tells that of the next.
        for session in (frame.sparkSession, self._refresher.spark):
            suit_to_rows(session, few=self._is_small(rows_in))
        watermark_ms = self._checkpoint.watermark_ms(batch)
        stamp = Stamp(
            app=f"stream/{self._checkpoint.stream}",
            version=batch,
            info={
                "cause": "stream",
                "batch": batch,
                "versions": versions,
                "watermark_ms": watermark_ms,
                "fingerprint": self._fingerprint,
            },
        )
        write_batch: dict[str, Callable[[DataFrame, Stamp, int], Written]] = {
            "append": self._write_new,
            "latest": self._write_latest,
            "stateful": self._write_revised,
            "touched": self._refresh,
        }
        written = write_batch[self._strategy](frame, stamp, rows_in)
        self._note(batch, rows_in, written, versions, watermark_ms, started)

    def _write_new(self, frame: DataFrame, stamp: Stamp, rows_in: int) -> Written:
        rows = frame.dropDuplicates(list(self.table.key))
        return self._upsert(rows.toArrow() if self._is_small(rows_in) else rows, stamp, keep=True)

    def _write_latest(self, frame: DataFrame, stamp: Stamp, rows_in: int) -> Written:
        rows = latest_of_each(frame, self.table)
        greatest = version_columns(self.table, frame.columns)
        return self._upsert(rows.toArrow() if self._is_small(rows_in) else rows, stamp, greatest=greatest)

    def _write_revised(self, frame: DataFrame, stamp: Stamp, rows_in: int) -> Written:
        frame = self._fence.beyond(frame)
        # A frame with state must be computed whole, and once: a limit would leave partitions of the state behind.
        if self._is_small(rows_in):
            return self._upsert(frame.toArrow(), stamp)
        frame = frame.persist()
        try:
            return self._upsert(frame, stamp) if frame.count() else Written()
        finally:
            frame.unpersist()

    def _is_small(self, rows_in: int) -> bool:
        """Whether the rows of a micro-batch are for delta-rs."""
        settings = self.lake.settings
        return settings.engine == "delta-rs" or (settings.engine == "auto" and rows_in <= settings.small_rows)

    def _upsert(self, rows: pa.Table | DataFrame, stamp: Stamp, **how: Any) -> Written:
        if isinstance(rows, pa.Table) and not len(rows):
            return Written()
        return self._writer.upsert(rows, self.table.key, stamp, **how)

    def _refresh(self, frame: DataFrame, stamp: Stamp, rows_in: int) -> Written:
        changed = (frame if self._is_small(rows_in) else frame.distinct()).toArrow()
        scopes = []
        for number, source in enumerate(self._sources):
            own = changed.filter(pc.equal(changed[_SOURCE], number))
            at = time_column(source)
            rows = own.select(self._scope_columns[number])
            scopes += scopes_of(self.table, source, rows.append_column(at, own[_AT]) if at else rows)
        return self._refresher.publish(merged(scopes), stamp.info, check=False)

    def _consumed(self, batch: int) -> tuple[int, dict[str, int]]:
        """Rows that the micro-batch read, and the next version of each input."""
        rows = 0
        versions: dict[str, int] = {}
        starts = self._checkpoint.next_versions(batch - 1) or [0] * len(self._sources)
        for source, start, end in zip(self._sources, starts, self._checkpoint.next_versions(batch), strict=True):
            versions[source.full_name] = end
            commits = self.lake.commits(source.full_name, start - 1, end - 1)
            rows += sum(added.rows or 0 for commit in commits if commit.changes for added in commit.added)
        return rows, versions

    def _note(
        self,
        batch: int,
        rows_in: int,
        written: Written,
        versions: dict[str, int],
        watermark_ms: int | None,
        started: float,
    ) -> None:
        if written.changed:
            self._commits += 1
            if self._commits % _TIDY_EVERY == 0:
                self.lake.tidy(self.table.full_name)
        write(
            self.lake.settings,
            Progress(
                domain=self.table.domain,
                query=self.table.name,
                batch=batch,
                watermark=from_epoch_ms(watermark_ms) if watermark_ms and self.table.closes_at else None,
                rows_in=rows_in,
                rows_out=written.changed,
                versions=versions,
                updated_at=datetime.now(UTC),
                batch_s=time.monotonic() - started,
            ),
        )


class _Fence:
    """Keeps a stream that begins anew from rewriting what its predecessor had closed."""

    def __init__(self, checkpoint: Checkpoint, lake: Lake, table: Table) -> None:
        self._file = checkpoint.path.with_name(f"{checkpoint.path.name}.fence")
        self._checkpoint, self._lake, self._table = checkpoint, lake, table

    def raise_once(self) -> None:
        """At the first start of a new checkpoint, remember what was closed by then."""
        if not self._table.closes_at or not self._checkpoint.is_new:
            return
        info = self._lake.newest_info(self._table.full_name, "watermark_ms", within=100_000)
        # A stream that begins anew starts with a low watermark: where it is lost too, the older fence is higher.
        known = [ms for ms in (self._closed_before_ms, info["watermark_ms"]) if ms] if info else []
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(str(max(known, default="")))

    def beyond(self, rows: DataFrame) -> DataFrame:
        """The rows that were still open."""
        from pyspark.sql import functions as F

        closed_before_ms = self._closed_before_ms
        if closed_before_ms is None or self._table.closes_at is None:
            return rows
        return rows.where(F.col(self._table.closes_at) >= F.lit(from_epoch_ms(closed_before_ms)))

    def take_out_open(self, writer: Writer) -> None:
        """Delete the rows that were still open."""
        import duckdb

        closes_at, closed_before_ms = self._table.closes_at, self._closed_before_ms
        if closes_at is None:
            return
        table = writer.newest()
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("live", table.scan())
        condition = "true" if closed_before_ms is None else f'epoch_us("{closes_at}") >= {closed_before_ms * 1_000}'
        rows = connection.sql(f"FROM live WHERE {condition}").to_arrow_table().cast(pa.schema(table.schema()))
        changes = rows.append_column(CHANGE, pa.repeat(pa.scalar("delete"), len(rows)))
        for column in rows.column_names:
            if column not in self._table.key:
                changes = changes.append_column(BEFORE + column, rows[column])
        if len(rows):
            number = (table.transaction_version(_NEW_DEFINITION) or 0) + 1
            stamp = Stamp(app=_NEW_DEFINITION, version=number, info={"cause": "stream"})
            writer.apply(changes, self._table.key, stamp)

    @property
    def _closed_before_ms(self) -> int | None:
        text = self._file.read_text() if self._file.exists() else ""
        return int(text) if text else None


def _output_mode(frame: DataFrame) -> str:
    """`update` revises rows until they close; joins and sessions can only emit final ones."""
    plan = frame._jdf.queryExecution().analyzed().toString()
    return "append" if "Join " in plan or "session_window" in plan or "Aggregate" not in plan else "update"
