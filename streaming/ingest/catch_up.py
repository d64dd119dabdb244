"""Ingests offsets that the broker has deleted from the archive, or records them as a gap."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from twofold.infra import DOCS
from twofold.infra.archive.archive_catalog import open_archive
from twofold.infra.archive.archive_frame import frame
from twofold.infra.archive.log_union import broker_frame
from twofold.infra.archive.platform_archive import PlatformArchive
from twofold.infra.errors import BrokerUnreachable, LogGap
from twofold.infra.kafka.topic_admin import PartitionOffsets, offsets, topic_ids
from twofold.infra.offset_ranges import Ranges, RangesOf
from twofold.infra.rows.sizes import is_small
from twofold.streaming.ingest.catch_up_plan import OffsetSegment, Source, begin, chunks, offset_segments, stages
from twofold.streaming.ingest.topic_writer import TopicWriter, in_log_order, read_if_small
from twofold.tables.refresh.events.lost_offsets import Gap, record
from twofold_archive.format.record_columns import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings

Offsets = Mapping[str, Mapping[int, int]]
T = TypeVar("T")
_log = logging.getLogger("twofold.fill")


@dataclass(frozen=True, kw_only=True)
class CatchUpPlan:
    """The work that must be done before a query of several topics can go on.

    Attributes:
        goes_on: topic -> partition -> the offset at which the query continues afterwards; a partition that was never
            read and has no gap is left out.
        legs: topic -> partition -> the gaps to fill, in order; empty if there are none.
        is_overtaken: the query's checkpoint must not be used: it has other partitions, or begins before the broker's
            log.
    """

    goes_on: Offsets
    legs: Mapping[str, Mapping[int, Sequence[OffsetSegment]]]
    is_overtaken: bool


class CatchUp:
    """Brings topics up to the start of the broker's local log.

    The topics' writers write everything, and write no record twice: a fill that was killed is simply repeated.

    Args:
        feeds: the writers of the topics, by name.
        note: called after each chunk with its number of records and its start time (`time.monotonic`).
        give_up: called with a topic that fails, so that the others are still filled; None: its error is raised.

    Attributes:
        topics: those that did not fail.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        feeds: Mapping[str, TopicWriter],
        note: Callable[[int, float], None],
        give_up: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._spark, self._lake, self._feeds, self._note, self._give_up = spark, lake, feeds, note, give_up
        self._settings: Settings = lake.settings
        self.topics = list(feeds)

    @cached_property
    def _archive(self) -> PlatformArchive:
        return open_archive(self._settings, list(self._feeds))

    def plan(self, checkpointed: Offsets) -> CatchUpPlan:
        """Finds the gaps that a query has to fill; asks only the broker, writes nothing.

        Args:
            checkpointed: topic -> partition -> the offset at which the query would continue by its checkpoint.

        Raises:
            LogGap: a topic was created again, or has lost records that were ingested; unless it is given up.
            BrokerUnreachable: retryable.
        """
        latest, ids = offsets(self._settings, list(self._feeds)), topic_ids(self._settings, list(self._feeds))
        goes_on: dict[str, dict[int, int]] = {}
        missing: dict[str, dict[int, list[OffsetSegment]]] = {}
        for topic in self._feeds:
            with self._alone(topic):
                log = ids.get(topic, "")
                segments = self._missing(topic, latest.get(topic, {}), log, checkpointed.get(topic, {}))
                for partition, (first, found_legs) in segments.items():
                    goes_on.setdefault(topic, {})[partition] = first
                    if found_legs:
                        missing.setdefault(topic, {})[partition] = found_legs
        overtaken = bool(checkpointed) and (bool(missing) or not _can_go_on(checkpointed, latest, goes_on))
        return CatchUpPlan(goes_on=goes_on, legs=missing, is_overtaken=overtaken)

    def _missing(
        self, topic: str, known: Mapping[int, PartitionOffsets], log: str, checkpointed: Mapping[int, int]
    ) -> dict[int, tuple[int, list[OffsetSegment]]]:
        """Returns the next offset and the gaps of each partition that was read before, or that does not begin at 0."""
        feed = self._feeds[topic]
        feed.reload()
        require_same_log(feed, topic, {topic: log})
        _require_whole_log(feed, topic, known)
        feed.log = log
        by_partition: dict[int, tuple[int, list[OffsetSegment]]] = {}
        for partition, broker in known.items():
            first, missing = begin(feed.events, partition, checkpointed.get(partition)), list[OffsetSegment]()
            if first is None and broker.earliest_local == 0:
                continue
            if first is None or first < broker.earliest_local:
                first, missing = self._legs(topic, partition, first, broker)
            by_partition[partition] = max(first, broker.earliest_local), missing
        return by_partition

    @contextmanager
    def _alone(self, topic: str) -> Iterator[None]:
        """Limits a failure of the block to one topic, if failed topics are given up."""
        try:
            yield
        except BrokerUnreachable:
            raise
        except Exception as error:
            if self._give_up is None:
                raise
            self.topics.remove(topic)
            self._give_up(topic, error)

    def run(self, plan: CatchUpPlan, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Fills gaps from the archive or the broker, and records lost offsets, each partition in order.

        Args:
            is_stopped: called between chunks; True ends the fill there.

        Raises:
            CorruptSegment: all chunks before it are ingested; unless the topic is given up.
            ArchiveUnreachable, BrokerUnreachable: retryable.
        """
        for source, stage in stages(plan.legs):
            if source == "nowhere":
                for topic, lost in self._left(stage):
                    with self._alone(topic):
                        self._lose(topic, lost)
                continue
            ranges = {t: {p: (leg.start, leg.end) for p, leg in found.items()} for t, found in stage.items()}
            for chunk in chunks(ranges, self._settings.max_offsets):
                if is_stopped():
                    return
                self._take(source, chunk)

    def _legs(
        self, topic: str, partition: int, first: int | None, broker: PartitionOffsets
    ) -> tuple[int, list[OffsetSegment]]:
        """Returns the first offset of a partition, and its gaps to fill."""
        archived, feed = self._archive.runs(topic).get(partition, []), self._feeds[topic]
        if first is None:
            first = min([broker.earliest, *(bounds.start for bounds in archived[:1])])
            feed.began = {**feed.began, partition: first}
        return first, offset_segments(first, feed.events.ends.get(partition, first), broker, archived)

    def _left(self, some: Mapping[str, T]) -> list[tuple[str, T]]:
        """Filters topics to those that did not fail."""
        return [(topic, plan) for topic, plan in some.items() if topic in self.topics]

    def _take(self, source: Source, chunk: RangesOf) -> None:
        for topic, ranges in self._left(chunk):
            with self._alone(topic):
                began, records = time.monotonic(), sum(end - start for start, end in ranges.values())
                self._take_topic(source, topic, ranges, records)
                _log.info("filled topic=%s source=%s records=%d ranges=%s", topic, source, records, dict(ranges))
                self._note(records, began)

    def _take_topic(self, source: Source, topic: str, ranges: Ranges, records: int) -> None:
        feed = self._feeds[topic]
        if source == "broker":
            raw = broker_frame(self._spark, self._settings, topic, ranges, feed.raw_columns)
            rows = read_if_small(self._settings, raw, records)
        else:
            rows = self._archived_rows(topic, ranges, records)
        if rows is not None:
            feed.take(rows, ranges)
        else:
            feed.take_frame(raw if source == "broker" else self._archived_frame(topic, ranges), ranges)

    def _archived_frame(self, topic: str, ranges: Ranges) -> DataFrame:
        return in_log_order(frame(self._spark, self._archive, {topic: ranges}, self._feeds[topic].raw_columns), ranges)

    def _archived_rows(self, topic: str, ranges: Ranges, records: int) -> pa.Table | None:
        """Reads the records into this process; None if they are too many or too large."""
        columns, size, rows_of = self._feeds[topic].raw_columns, 0, []
        if not is_small(self._settings, records):
            return None
        for batch in self._archive.read({topic: ranges}, columns):
            size += batch.nbytes
            if not is_small(self._settings, records, record_bytes=size):
                return None
            rows_of.append(batch)
        return pa.Table.from_batches(rows_of, schema=schema(columns))

    def _lose(self, topic: str, lost: Mapping[int, OffsetSegment]) -> None:
        """Records lost offsets in the ledger of gaps, then moves the frontier past them."""
        feed, now = self._feeds[topic], datetime.now(UTC)
        feed.reload()  # records ingested by another driver before the broker deleted them are not lost
        found = [
            Gap(topic=topic, partition=p, start=start, end=end, recorded_at=now, why=lost[p].why, log=feed.log)
            for p, (start, end) in feed.events.beyond({p: (leg.start, leg.end) for p, leg in lost.items()}).items()
        ]
        if not found:
            return
        for gap in record(self._lake, found, self._spark):
            place = gap.topic, gap.partition, gap.start, gap.end
            _log.error("records lost topic=%s partition=%d start=%d end=%d why=%s", *place, gap.why)
        feed.skip({gap.partition: (gap.start, gap.end) for gap in found})


def _can_go_on(checkpointed: Offsets, known: Mapping[str, Mapping[int, PartitionOffsets]], goes_on: Offsets) -> bool:
    """Whether the checkpoint can be used: Spark fails if a partition is gone, or a new one does not begin at 0."""
    has_all = all(
        partition in known.get(topic, {}) and offset >= known[topic][partition].earliest_local
        for topic, partitions in checkpointed.items()
        for partition, offset in partitions.items()
    )
    return has_all and all(partitions.keys() <= checkpointed.get(t, {}).keys() for t, partitions in goes_on.items())


def require_same_log(feed: TopicWriter, topic: str, ids: Mapping[str, str]) -> None:
    """Refuses a topic of the same name with another id than that of the ingested one, if both ids are known.

    Raises:
        LogGap: the topic was created again.
    """
    log = ids.get(topic, "")
    if {feed.log, feed.events.log} - {"", log} and log:
        raise _another_log(feed, topic, "the topic is another one of the same name")


def _require_whole_log(feed: TopicWriter, topic: str, broker: Mapping[int, PartitionOffsets]) -> None:
    """Refuses a topic whose log ends before the offsets that were ingested.

    Raises:
        LogGap: it ends before them.
    """
    for partition, end in feed.events.ends.items():
        there = broker.get(partition)
        if there is None or there.latest < end:
            has = f"its log ends at {there.latest}" if there else "it has no such partition"
            raise _another_log(feed, topic, f"{has}: partition {partition}")


def _another_log(feed: TopicWriter, topic: str, why: str) -> LogGap:
    return LogGap(
        f"{topic}: offsets up to {dict(feed.events.ends)} were ingested, and on the broker {why}.",
        hint="The topic was deleted and created again, or the broker lost records: equal offsets would mean other "
        f"records. Events and quarantine hold the old log; {DOCS}/how-to/lost-records.md says how to keep them and go "
        "on.",
        topic=topic,
    )
