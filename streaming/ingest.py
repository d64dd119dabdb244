"""Log to events: every record of a domain's topics into its events or its quarantine table, each offset once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from infra.errors import BrokerUnreachable
from infra.ranges import Ranges, RangesOf
from streaming.feed import Feed, is_large
from streaming.fill import Fill, Offsets
from streaming.filling import Filling
from streaming.heartbeat import Pulse, due
from streaming.progress import Progress, write
from streaming.upkeep import Running
from tables.checkpoint import Checkpoint
from tables.decode import RAW_SCHEMA
from tables.lake import Lake
from tables.registry import Registry
from tables.tidy import tidy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from infra.settings import Settings

_TIDY_EVERY = 100


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
        self._feeds = {name: Feed(spark, lake, topic) for name, topic in self._topics.items()}
        self._checkpoint = Checkpoint(self._settings.checkpoints / domain / "ingest")
        self._commits = 0
        self._log_ms = self._since_ms = 0

    def start(self, *, available_now: bool) -> Running:
        """Start the query; with `available_now` it ends when it has read what is there.

        What the broker has no longer at hand is filled first.

        Raises:
            LogGap: a topic was made anew, or has lost records that were ingested.
            BrokerUnreachable: retryable.
        """
        fill = Fill(self._spark, self._lake, self._feeds, self._note_filled)
        plan = fill.plan(self._checkpointed())
        if not (plan.legs or plan.is_overtaken):
            return self._query(plan.goes_on, available_now)

        def filled() -> StreamingQuery:
            if plan.is_overtaken:
                self._checkpoint.set_aside()
            return self._query(plan.goes_on, available_now)

        return Filling(f"{self._domain}.ingest", partial(fill.run, plan), filled)

    def _query(self, starts: Offsets, available_now: bool) -> StreamingQuery:
        """Start the query; a new checkpoint begins at these offsets, or at the earliest."""
        reader = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.bootstrap_servers)
            .option("subscribe", ",".join(self._topics))
            .option("startingOffsets", json.dumps(self._starting_offsets(starts)))
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

    def _starting_offsets(self, starts: Offsets) -> dict[str, dict[str, int]]:
        """Where a new checkpoint begins, as Spark writes it, of every partition.

        The newest micro-batch is read again, since its quarantine may not have been written.
        """
        earliest = -2  # Kafka's name for it
        return {
            name: {str(p): starts.get(name, {}).get(p, earliest) for p in range(topic.partitions)}
            for name, topic in self._topics.items()
        }

    def _checkpointed(self) -> dict[str, dict[int, int]]:
        """Where the query goes on by its checkpoint: after the micro-batch that it ended last; nothing without one."""
        committed = self._checkpoint.committed
        ends = self._checkpoint.initial() if committed is None else self._checkpoint.sources(committed)[0]
        return {
            topic: {int(p): int(end) for p, end in partitions.items()} for topic, partitions in (ends or {}).items()
        }

    def _batch(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        ranges = self._ranges(batch)
        records = sum(end - start for topic in ranges.values() for start, end in topic.values())
        busy = {name: r for name, r in ranges.items() if any(end > start for start, end in r.values())}
        began = self._checkpoint.initial() or {}
        for name in busy:
            self._feeds[name].began = {int(p): int(offset) for p, offset in began.get(name, {}).items()}
        if is_large(self._settings, records):
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

    def _note_filled(self, records: int, started: float) -> None:
        """Tell how far a fill has brought the topics."""
        ended = self._checkpoint.committed
        ranges = {name: {p: (end, end) for p, end in feed.events.ends.items()} for name, feed in self._feeds.items()}
        self._note(-1 if ended is None else ended, ranges, records, started, None)

    def _note(self, batch: int, ranges: RangesOf, records: int, started: float, newest: datetime | None) -> None:
        now = datetime.now(UTC)
        self._commits += 1
        if self._commits % _TIDY_EVERY == 0:
            for name in self._topics:
                tidy(self._lake, name)
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
