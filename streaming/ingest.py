"""Log to events: every record of a domain's topics into its events or its quarantine table, each offset once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from infra.errors import BrokerUnreachable, LogGap
from streaming.heartbeat import Pulse, due
from streaming.progress import Progress, write
from tables.checkpoint import Checkpoint
from tables.declaration import Topic
from tables.decode import (
    APPENDED_AT,
    OFFSET,
    PARTITION,
    QUARANTINE_SCHEMA,
    RAW_SCHEMA,
    Decoder,
    decode_frame,
    events_schema,
    heartbeat,
)
from tables.frontier import INGEST, Frontier, frontier
from tables.lake import QUARANTINE, Lake
from tables.registry import Registry
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from infra.settings import Settings

Ranges = Mapping[int, tuple[int, int]]
_TIDY_EVERY = 100
_log = logging.getLogger("twofold.ingest")


class Ingest:
    """One query for all topics of a domain.

    What was ingested is known from the Delta tables alone: each commit carries the offsets that it ends at, so a
    micro-batch that comes again, whole, in part or cut differently, adds only what is not there. A lost or moved
    checkpoint therefore neither repeats nor skips a record.
    """

    def __init__(self, spark: SparkSession, lake: Lake, registry: Registry, domain: str) -> None:
        self._spark, self._lake, self._domain = spark, lake, domain
        self._settings: Settings = lake.settings
        self._topics = {topic.full_name: topic for topic in registry.domain_topics(domain)}
        self._feeds = {name: _Feed(spark, lake, topic) for name, topic in self._topics.items()}
        self._checkpoint = Checkpoint(self._settings.checkpoints / domain / "ingest")
        self._commits = 0
        self._log_ms = self._since_ms = 0

    def start(self, *, available_now: bool) -> StreamingQuery:
        """Start the query; with `available_now` it ends when it has read what is there."""
        reader = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.bootstrap_servers)
            .option("subscribe", ",".join(self._topics))
            .option("startingOffsets", json.dumps(self._starting_offsets()))
            .option("maxOffsetsPerTrigger", self._settings.max_offsets)
            .option("failOnDataLoss", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("groupIdPrefix", f"twofold-{self._domain}")
        )
        writer = (
            reader.load()
            .select("topic", *RAW_SCHEMA.names)
            .writeStream.queryName(f"{self._domain}.ingest")
            .option("checkpointLocation", str(self._checkpoint.path))
            .foreachBatch(self._batch)
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.ingest_trigger_ms} milliseconds").start()

    def _starting_offsets(self) -> dict[str, dict[str, int]]:
        """Where a new checkpoint begins: at the newest micro-batch that is in the events tables.

        That one is read again, since its quarantine may not have been written; the tables take nothing twice.
        """
        from infra.topics import offsets

        earliest = -2  # Kafka's name for it
        known = offsets(self._settings, list(self._topics))
        return {
            name: {str(p): feed.events.starts.get(p, feed.events.ends.get(p, earliest)) for p in known[name]}
            for name, feed in self._feeds.items()
        }

    def _batch(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        ranges = self._ranges(batch)
        records = sum(end - start for topic in ranges.values() for start, end in topic.values())
        busy = {name: r for name, r in ranges.items() if any(end > start for start, end in r.values())}
        began = self._checkpoint.initial() or {}
        for name in busy:
            self._feeds[name].began = {int(p): int(offset) for p, offset in began.get(name, {}).items()}
        if self._settings.engine == "spark" or (
            self._settings.engine == "auto" and records > self._settings.small_rows
        ):
            for name, topic_ranges in busy.items():
                self._feeds[name].take_frame(frame.where(f"topic = '{name}'"), topic_ranges)
            newest = None
        else:
            raw = frame.toArrow()
            newest = pc.max(raw["timestamp"]).as_py() if len(raw) else None
            with ThreadPoolExecutor(max_workers=len(self._topics)) as pool:
                for done in [
                    pool.submit(self._feeds[name].take, raw.filter(pc.equal(raw["topic"], name)), topic_ranges)
                    for name, topic_ranges in busy.items()
                ]:
                    done.result()
        self._move_idle()
        self._note(batch, ranges, records, started, newest)

    def _move_idle(self) -> None:
        """Move the time of topics that are idle, and of which the broker holds nothing that waits to be read."""
        wanted = due(self._pulses())
        if not wanted:
            return
        from infra.topics import offsets

        try:
            on_broker = offsets(self._settings, list(wanted))
        except BrokerUnreachable:
            return
        for name, event_ms in wanted.items():
            ends = self._feeds[name].events.ends
            if all(bounds.latest <= ends.get(p, bounds.earliest) for p, bounds in on_broker.get(name, {}).items()):
                self._feeds[name].move(event_ms, self._log_ms)
            else:
                self._feeds[name].moved_ms = self._log_ms  # asked, which is not to be done with every micro-batch

    def _pulses(self) -> dict[str, Pulse]:
        """Where each topic stands; one of which no record was seen is waited for since the first of any other."""
        appended = [feed.appended_ms for feed in self._feeds.values() if feed.appended_ms is not None]
        if not appended:
            return {}
        self._log_ms = max(appended)
        self._since_ms = self._since_ms or self._log_ms
        return {
            name: Pulse(
                idle_after_ms=self._topics[name].idle_after_ms,
                newest_ms=feed.events.newest_ms,
                appended_ms=self._since_ms if feed.appended_ms is None else feed.appended_ms,
                moved_ms=feed.moved_ms,
            )
            for name, feed in self._feeds.items()
        }

    def _ranges(self, batch: int) -> dict[str, Ranges]:
        """The offsets `[start, end)` of each partition in the micro-batch, as the checkpoint planned them."""
        ends = self._checkpoint.sources(batch)[0] or {}
        before = self._checkpoint.sources(batch - 1)
        starts = (before[0] if before else self._checkpoint.initial()) or {}
        return {
            topic: {int(p): (int(starts.get(topic, {}).get(p, 0)), int(end)) for p, end in partitions.items()}
            for topic, partitions in ends.items()
        }

    def _note(
        self, batch: int, ranges: Mapping[str, Ranges], records: int, started: float, newest: datetime | None
    ) -> None:
        now = datetime.now(UTC)
        self._commits += 1
        if self._commits % _TIDY_EVERY == 0:
            for name in self._topics:
                self._lake.tidy(name)
        write(
            self._settings,
            Progress(
                domain=self._domain,
                query="ingest",
                batch=batch,
                rows_in=records,
                rows_out=records,
                offsets={topic: {p: end for p, (_, end) in r.items()} for topic, r in ranges.items()},
                updated_at=now,
                batch_s=time.monotonic() - started,
                freshness_s=(now - newest.astimezone(UTC)).total_seconds() if newest else None,
            ),
        )


class _Feed:
    """One topic's two Delta tables."""

    def __init__(self, spark: SparkSession, lake: Lake, topic: Topic) -> None:
        self._lake, self._topic = lake, topic
        self._decoder = Decoder(topic)
        self.began: Mapping[int, int] = {}  # where the checkpoint began to read
        self.appended_ms: int | None = None  # when the broker got the newest record that was taken here
        self.moved_ms: int | None = None  # how far the log had come when it was last moved, or could have been
        self._writers = (
            Writer(lake, topic.full_name, spark),
            Writer(lake, topic.full_name + QUARANTINE, spark),
        )
        self._reload()

    def _reload(self) -> None:
        self.events = frontier(self._lake, self._topic)
        self._quarantine = frontier(self._lake, self._topic, quarantine=True)

    def take(self, raw: pa.Table, ranges: Ranges) -> None:
        """Write the records of one micro-batch from this process."""
        self._require_no_gap(ranges)
        decoded = self._decoder.decode(raw, self.events.newest_ms)
        newest = _newest_ms(decoded.accepted, self._topic.event_time)
        # Quarantine first: the events' commit says that the micro-batch is in, so it must be the last.
        if len(decoded.rejected):
            self._commit(decoded.rejected, ranges, None, quarantine=True)
        self._commit(decoded.accepted, ranges, newest, quarantine=False)
        self._seen(_newest_ms(decoded.accepted, APPENDED_AT))

    def take_frame(self, raw: DataFrame, ranges: Ranges) -> None:
        """Write the records of a large micro-batch through Spark, decoding them once in its workers."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._require_no_gap(ranges)
        newest_ms = self.events.newest_ms
        decoded = decode_frame(raw, self._topic, newest_ms)
        seen = Observation()
        observed = decoded.observe(
            seen,
            F.count("reasons").alias("rejected"),
            F.max(F.unix_millis(self._topic.event_time)).alias("newest_ms"),
            F.max(F.when(F.col("reasons").isNull(), F.unix_millis(APPENDED_AT))).alias("appended_ms"),
        )
        accepted = observed.where("reasons IS NULL").select(*events_schema(self._topic).names)
        # The newest event time is known only once the rows are written: this commit says that it does not know it.
        self.events = replace(self.events, newest_ms=None)
        wrote = self._commit(accepted, ranges, None, quarantine=False)
        # An observation is made by the write alone: where that was done before a crash, it would never come.
        facts = seen.get if wrote else {}
        if facts.get("rejected", 1):
            columns = QUARANTINE_SCHEMA.names
            self._commit(decoded.where("reasons IS NOT NULL").select(*columns), ranges, None, quarantine=True)
        self._seen(facts.get("appended_ms"))
        if wrote:
            known = [ms for ms in (newest_ms, facts["newest_ms"]) if ms is not None]
            self.events = replace(self.events, newest_ms=max(known, default=None))
        else:
            self._reload()

    def move(self, event_ms: int, log_ms: int) -> None:
        """Let the topic's time go on without a record.

        The row is committed among the events, so that streams meet it where `_late_by_ms` of later records expects it.

        Args:
            event_ms: epoch milliseconds that the topic's time goes to.
            log_ms: how far the log of all topics had come by then.
        """
        after = self.events.moved(event_ms)
        stamp = Stamp(app=INGEST, version=after.number, info={"cause": "idle", **after.info})
        row = heartbeat(self._topic, event_ms, log_ms, self.events.newest_ms)
        if self._writers[False].append(row, stamp).skipped:
            self._reload()
        else:
            self.events, self.moved_ms = after, log_ms
            _log.info("idle topic=%s moved_to=%d", self._topic.full_name, event_ms)

    def _seen(self, appended_ms: int | None) -> None:
        """Note when the newest good record of a micro-batch was appended; bad ones tell no time."""
        if appended_ms is not None:
            self.appended_ms = max(appended_ms, self.appended_ms or 0)
            self.moved_ms = None

    def _commit(self, rows: pa.Table | DataFrame, ranges: Ranges, newest_ms: int | None, quarantine: bool) -> bool:
        """Append what the table has not got yet, saying how far that brings it; False when it had everything."""
        name = self._topic.full_name + (QUARANTINE if quarantine else "")
        for _ in range(3):
            before = self._quarantine if quarantine else self.events
            after = before.after(
                {p: start for p, (start, _) in ranges.items()},
                {p: max(end, before.ends.get(p, 0)) for p, (_, end) in ranges.items()},
                newest_ms,
            )
            if after.number <= before.number:
                return False
            stamp = Stamp(app=INGEST, version=after.number, info={"cause": "ingest", **after.info})
            written = self._writers[quarantine].append(_beyond(rows, ranges, before), stamp)
            if not written.skipped:
                if quarantine:
                    self._quarantine = after
                else:
                    self.events = after
                return True
            self._reload()
        raise LogGap(
            f"{name}: another writer ingests the same topic.",
            hint="Stop one of the drivers: `./twofold status` lists them.",
        )

    def _require_no_gap(self, ranges: Ranges) -> None:
        for partition, (start, _) in ranges.items():
            end = self.events.ends.get(partition, self.began.get(partition, 0))
            if start > end:
                raise LogGap(
                    f"{self._topic.full_name}, partition {partition}: the events table ends before offset {end} and "
                    f"the stream goes on at {start}: [{end}, {start}) would be lost.",
                    hint="The table was restored or the checkpoint belongs to another one. Remove the checkpoint "
                    f"{self._lake.settings.checkpoints / self._topic.domain / 'ingest'}: ingest then goes on where the "
                    "table ends.",
                )


def _beyond(rows: pa.Table | DataFrame, ranges: Ranges, before: Frontier) -> pa.Table | DataFrame:
    """The rows that lie beyond a frontier."""
    known = {p: before.ends[p] for p, (start, _) in ranges.items() if before.ends.get(p, 0) > start}
    if not known:
        return rows
    if isinstance(rows, pa.Table):
        for partition, end in known.items():
            rows = rows.filter(pc.or_(pc.not_equal(rows[PARTITION], partition), pc.greater_equal(rows[OFFSET], end)))
        return rows
    for partition, end in known.items():
        rows = rows.where(f"{PARTITION} <> {partition} OR {OFFSET} >= {end}")
    return rows


def _newest_ms(events: pa.Table, column: str) -> int | None:
    newest = pc.max(events[column].cast(pa.int64())).as_py()
    return None if newest is None else newest // 1000
