"""The query that ingests a domain's topics: each record into events or quarantine, each offset once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from twofold.infra.delta.compaction import compact
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BrokerUnreachable, LogGap
from twofold.infra.kafka.spark_source import source_options
from twofold.infra.kafka.topic_admin import KeptAdmin
from twofold.infra.offset_ranges import Ranges, RangesOf
from twofold.infra.process.kept_running import Running
from twofold.infra.rows.sizes import INGESTED, is_small
from twofold.streaming.ingest.catch_up import CatchUp, Offsets, require_same_log
from twofold.streaming.ingest.excluded_topics import ExcludedTopics
from twofold.streaming.ingest.idle_topics import Heartbeat, due
from twofold.streaming.ingest.topic_writer import TopicWriter, size_of
from twofold.streaming.query.deferred_query import DeferredQuery
from twofold.streaming.query.progress import Progress, write
from twofold.streaming.query.step_shares import FEW, Shares
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import SPARK
from twofold_archive.format.record_columns import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from twofold.infra.project.settings import Settings

_TIDY_EVERY = 100
_UNMEASURED = 500  # records, of a megabyte by Kafka's default at most, that are taken for small unseen


class Ingest:
    """One query for all topics of a domain.

    The Delta tables alone record the progress of ingest: each commit carries the offsets at which it ends, so a
    repeated micro-batch, whole, partial or split differently, adds only missing records. A lost or moved checkpoint
    therefore neither repeats nor skips a record.

    Args:
        shares: spaces the micro-batches; None: they follow one another.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, registry: Registry, domain: str, shares: Shares | None = None
    ) -> None:
        self._spark, self._lake, self._domain, self._shares = spark, lake, domain, shares
        self._readers = 1 + len(registry.in_order(domain))
        self._settings: Settings = lake.settings
        self._topics = {topic.full_name: topic for topic in registry.domain_topics(domain)}
        self._feeds = {name: TopicWriter(spark, lake, topic) for name, topic in self._topics.items()}
        self._checkpoint = Checkpoint(self._settings.checkpoints / domain / "ingest")
        self._left_out = ExcludedTopics()
        self._active = list(self._topics)
        self._broker = KeptAdmin(self._settings)
        self._committed: Offsets = {}
        self._record_bytes: float | None = None
        self._commits = 0
        self._log_ms = self._since_ms = 0

    def start(self, *, available_now: bool) -> Running:
        """Starts the query; with `available_now` it ends once it has read all available records.

        Records that the broker no longer has are ingested first, from the archive. Without `available_now`, a topic
        that fails is left out for a while, and the others continue.

        Raises:
            LogGap: a topic was created again, or has lost records that were ingested.
            BrokerUnreachable: retryable.
        """
        left_out = () if available_now else self._left_out.now
        feeds = {name: feed for name, feed in self._feeds.items() if name not in left_out}
        give_up = None if available_now else partial(self._left_out.add, at_once=True)
        fill = CatchUp(self._spark, self._lake, feeds, self._note_filled, give_up)
        plan = fill.plan(self._checkpointed())
        is_overtaken = plan.is_overtaken or self._plans_others(fill.topics)
        if not (plan.legs or is_overtaken):
            return self._query(plan.goes_on, fill.topics, available_now)

        def filled() -> StreamingQuery:
            if is_overtaken or self._plans_others(fill.topics):
                self._checkpoint.set_aside()
            return self._query(plan.goes_on, fill.topics, available_now)

        return DeferredQuery(f"{self._domain}.ingest", partial(fill.run, plan), filled)

    def _query(self, starts: Offsets, topics: list[str], available_now: bool) -> StreamingQuery:
        """Starts the query of these topics; a new checkpoint begins at these offsets, or at the earliest."""
        if not topics:
            raise LogGap(f"No topic of {self._domain} can be ingested: {self._left_out.message}")
        self._active = topics
        columns = dict.fromkeys(column for topic in topics for column in self._feeds[topic].raw_columns)
        reader = (
            self._spark.readStream.format("kafka")
            .options(**source_options(self._settings, headers=HEADERS in columns))
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", json.dumps(self._starting_offsets(starts)))
            .option("maxOffsetsPerTrigger", self._settings.max_offsets)
            .option("groupIdPrefix", f"twofold-{self._domain}")
        )
        writer = (
            reader.load()
            .select("topic", *columns)
            .writeStream.queryName(f"{self._domain}.ingest")
            .option("checkpointLocation", str(self._checkpoint.path))
            .foreachBatch(self._batch)
        )
        if available_now:
            return writer.trigger(availableNow=True).start()
        query = writer.trigger(processingTime=f"{self._settings.ingest_trigger_ms} milliseconds").start()
        if self._left_out.wait_s is not None:
            # The driver starts the query again, with the topic that was left out.
            timer = threading.Timer(self._left_out.wait_s, query.stop)
            timer.daemon = True
            timer.start()
        return query

    def _starting_offsets(self, starts: Offsets) -> dict[str, dict[str, int]]:
        """Returns the starting offsets of every partition for a new checkpoint, in Spark's format.

        The newest micro-batch is read again, since its quarantine may not have been written.
        """
        earliest = -2  # Kafka's name for it
        return {
            name: {str(p): starts.get(name, {}).get(p, earliest) for p in range(self._topics[name].partitions)}
            for name in self._active
        }

    def _checkpointed(self) -> dict[str, dict[int, int]]:
        """Returns the offsets at which the query continues by its checkpoint; empty without one."""
        committed = self._checkpoint.committed
        ends = self._checkpoint.initial() if committed is None else self._checkpoint.sources(committed)[0]
        return {
            topic: {int(p): int(end) for p, end in partitions.items()} for topic, partitions in (ends or {}).items()
        }

    def _plans_others(self, topics: Collection[str]) -> bool:
        """Whether the newest micro-batch of the checkpoint, ended or planned, has other topics as well."""
        committed = self._checkpoint.committed
        numbers = (0,) if committed is None else (committed, committed + 1)
        planned = [ends for number in numbers for ends in self._checkpoint.sources(number)]
        return any(not ends.keys() <= set(topics) for ends in planned)

    def _batch(self, frame: DataFrame, batch: int) -> None:
        started = time.monotonic()
        ranges = self._ranges(batch)
        records = sum(end - start for topic in ranges.values() for start, end in topic.values())
        busy = {name: r for name, r in ranges.items() if any(end > start for start, end in r.values())}
        began = self._checkpoint.initial() or {}
        for name in busy:
            self._feeds[name].began = {int(p): int(offset) for p, offset in began.get(name, {}).items()}
        if self._is_large(frame, records):
            ids, newest = self._broker.topic_ids(list(self._topics)), None
            frames = {name: frame.where(f"topic = {SPARK.literal(name)}") for name in busy}
            failed = self._each({name: partial(self._take_frame, name, frames[name], busy[name], ids) for name in busy})
        else:
            size, self._record_bytes = self._record_bytes, None  # which a failure leaves to be measured
            raw = frame.toArrow()
            self._record_bytes = raw.nbytes / len(raw) if len(raw) else size
            ids = self._broker.topic_ids(
                list(self._topics)
            )  # of the log that the records were read from, or of one after it
            newest = pc.max(raw["timestamp"]).as_py() if len(raw) else None
            rows = {name: raw.filter(pc.equal(raw["topic"], name)) for name in busy}
            with ThreadPoolExecutor(max_workers=len(self._topics)) as pool:
                taken = {name: pool.submit(self._take, name, rows[name], busy[name], ids) for name in busy}
                failed = self._each({name: done.result for name, done in taken.items()})
        failed += self._move_idle()
        if failed:
            raise failed[0]
        self._note(batch, ranges, records, started, newest)
        if self._shares is not None and records <= FEW:  # after more there is a backlog
            self._shares.rest("ingest", time.monotonic() - started, readers=self._readers)

    def _is_large(self, frame: DataFrame, records: int) -> bool:
        """Whether Spark should write the micro-batch, if its records are as large as earlier ones.

        The size of records is measured after a start and after a failure, which reads all of them.
        """
        if self._record_bytes is None and records > _UNMEASURED and is_small(self._settings, records, INGESTED):
            self._record_bytes = size_of(frame) / records
        return not is_small(self._settings, records, INGESTED, record_bytes=records * (self._record_bytes or 0))

    def _take(self, name: str, raw: pa.Table, ranges: Ranges, ids: Mapping[str, str]) -> None:
        require_same_log(self._feeds[name], name, ids)
        self._feeds[name].take(raw, ranges)

    def _take_frame(self, name: str, raw: DataFrame, ranges: Ranges, ids: Mapping[str, str]) -> None:
        require_same_log(self._feeds[name], name, ids)
        self._feeds[name].take_frame(raw, ranges)
        require_same_log(self._feeds[name], name, self._broker.topic_ids(list(self._topics)))

    def _each(self, steps: Mapping[str, Callable[[], object]]) -> list[Exception]:
        """Runs a step for each topic, independent of failures of the others; returns the errors."""
        failed = []
        for name, step in steps.items():
            try:
                step()
                self._left_out.took(name)
            except Exception as error:
                self._left_out.add(name, error, at_once=False)
                failed.append(error)
        return failed

    def _move_idle(self) -> list[Exception]:
        """Advances the event time of idle topics that have no unread records on the broker."""
        idle = due(self._pulses())
        if not idle:
            return []
        from twofold.infra.kafka.topic_admin import offsets

        try:
            on_broker = offsets(self._settings, list(idle))
        except BrokerUnreachable:
            return []
        moves: dict[str, Callable[[], object]] = {}
        for name, event_ms in idle.items():
            ends = self._feeds[name].events.ends
            if all(bounds.latest <= ends.get(p, bounds.earliest) for p, bounds in on_broker.get(name, {}).items()):
                moves[name] = partial(self._feeds[name].move, event_ms, self._log_ms)
            else:
                self._feeds[name].moved_ms = self._log_ms  # asked, which is not to be done with every micro-batch
        return self._each(moves)

    def _pulses(self) -> dict[str, Heartbeat]:
        """Returns the time position of each topic; one without records waits since the first record of any other."""
        feeds = {name: self._feeds[name] for name in self._active}
        appended = [feed.appended_ms for feed in feeds.values() if feed.appended_ms is not None]
        if not appended:
            return {}
        self._log_ms = max(appended)
        self._since_ms = self._since_ms or self._log_ms
        return {
            name: Heartbeat(
                idle_timeout_ms=self._topics[name].idle_timeout_ms,
                newest_ms=feed.events.newest_ms,
                appended_ms=self._since_ms if feed.appended_ms is None else feed.appended_ms,
                moved_ms=feed.moved_ms,
            )
            for name, feed in feeds.items()
        }

    def _ranges(self, batch: int) -> dict[str, Ranges]:
        """Returns the offsets `[start, end)` of each partition in the micro-batch, as planned in the checkpoint."""
        ends = self._checkpoint.sources(batch)[0] or {}
        before = self._checkpoint.sources(batch - 1)
        starts = (before[0] if before else self._checkpoint.initial()) or {}
        return {
            topic: {int(p): (int(starts.get(topic, {}).get(p, 0)), int(end)) for p, end in partitions.items()}
            for topic, partitions in ends.items()
        }

    def _note_filled(self, records: int, started: float) -> None:
        """Records the progress of a catch-up."""
        ended = self._checkpoint.committed
        ranges = {name: {p: (end, end) for p, end in feed.events.ends.items()} for name, feed in self._feeds.items()}
        self._note(-1 if ended is None else ended, ranges, records, started, None)

    def _note(self, batch: int, ranges: RangesOf, records: int, started: float, newest: datetime | None) -> None:
        now = datetime.now(UTC)
        self._commits += 1
        if self._commits % _TIDY_EVERY == 0:
            for name in self._active:
                compact(self._lake, name)
        stand = {name: self._feeds[name].events.ends for name in self._topics if name not in self._active}
        offsets = {**stand, **{topic: {p: end for p, (_, end) in r.items()} for topic, r in ranges.items()}}
        if offsets != self._committed and self._broker.commit(f"twofold.{self._domain}", offsets):
            self._committed = offsets
        write(
            self._settings,
            Progress(
                domain=self._domain,
                query="ingest",
                batch=batch,
                rows_in=records,
                rows_out=records,
                offsets=offsets,
                updated_at=now,
                batch_s=time.monotonic() - started,
                freshness_s=(now - newest.astimezone(UTC)).total_seconds() if newest else None,
                error=self._left_out.message,
            ),
        )
