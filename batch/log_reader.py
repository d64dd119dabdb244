"""Reads raw records of topics by ranges of offsets, from the archive and the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from twofold.batch.offset_selection import LogPosition, OffsetSelection, require_past, require_there
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import duckdb_utc
from twofold.infra.errors import NotArchived
from twofold.infra.kafka.topic_admin import PartitionOffsets, offsets
from twofold.infra.kafka.uncommitted_offsets import in_transactions
from twofold.infra.offset_ranges import Range, Ranges, Spans, batches_of_size, subtract, within
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.lost_offsets import between_gaps, gaps
from twofold.tables.refresh.events.record_decoder import raw_columns
from twofold.tables.refresh.open_platform import Platform
from twofold_archive.format.record_columns import RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.infra.archive.platform_archive import PlatformArchive


@dataclass(frozen=True)
class Log:
    """The log of some topics: read from the archive as far as it reaches, and from the broker for the rest."""

    platform: Platform
    topics: Sequence[str]

    @cached_property
    def _archive(self) -> PlatformArchive:
        from twofold.infra.archive.archive_catalog import open_archive

        return open_archive(self.platform.lake.settings, self.topics)

    def _on_broker(self, topic: str) -> Mapping[int, PartitionOffsets]:
        return offsets(self.platform.lake.settings, [topic])[topic]

    def starts(self, topic: str) -> dict[int, int]:
        """Returns the first offset of each partition that still exists.

        Raises:
            BrokerUnreachable: retryable.
        """
        return self._starts(topic, self._on_broker(topic))

    def _starts(self, topic: str, on_broker: Mapping[int, PartitionOffsets]) -> dict[int, int]:
        archived = self._archive.bounds(topic)
        return {
            partition: min(bounds.earliest, archived[partition].start) if partition in archived else bounds.earliest
            for partition, bounds in on_broker.items()
        }

    def ranges(self, topic: Topic, span: OffsetSelection, now: datetime) -> dict[int, Range]:
        """Resolves a selection to the offsets of each partition; partitions without any are left out.

        Raises:
            BadArgument: partitions that the topic does not have, or a range that begins before its log or ends before
                it begins.
            NotArchived: a range ends beyond the ingested offsets, or beyond the archive; names that frontier.
                Retryable, since it moves.
            BrokerUnreachable: retryable.
        """
        # Read after `now`: later records were not appended before any instant that precedes `now`.
        on_broker = self._on_broker(topic.full_name)
        earliest, ingested = (
            self._starts(topic.full_name, on_broker),
            read_ingested_offsets(self.platform.lake, topic).ends,
        )
        reach = {p: max(there, ingested.get(p, 0)) for p, there in earliest.items()}
        span.require_valid(topic, earliest)
        if isinstance(span.end, datetime):
            require_past(topic, span.end, now)
            latest = {p: there.latest for p, there in on_broker.items() if span.takes(p)}
            self._require_all_before(topic, span.end, reach, latest)
        frontier_of = "what is ingested"
        if span.archived:
            # A hole in the archive does not end it: the broker is asked for the records of the hole.
            archived, frontier_of = self._archive.runs(topic.full_name), "the archive"
            reach = {p: min(reach[p], archived[p][-1].end if p in archived else there) for p, there in earliest.items()}
        start, end = self._resolved(topic, span.start, earliest), self._resolved(topic, span.end, reach)
        ranges_of = {}
        for partition, there in earliest.items():
            if span.takes(partition):
                asked = start[partition], end[partition]
                require_there(topic, partition, asked, (there, reach[partition]), frontier_of)
                if asked[0] < asked[1]:
                    ranges_of[partition] = asked
        return ranges_of

    def _resolved(self, topic: Topic, edge: LogPosition | None, otherwise: Mapping[int, int]) -> Mapping[int, int]:
        """Resolves a position to the offset of each partition."""
        if isinstance(edge, datetime):
            edge = offsets_at(self.platform.lake, topic, edge)
        return {**otherwise, **(edge or {})}

    def _require_all_before(
        self, topic: Topic, instant: datetime, ingested: Mapping[int, int], latest: Mapping[int, int]
    ) -> None:
        """Refuses an instant unless a later record, or the broker's last one, was ingested."""
        offsets = offsets_at(self.platform.lake, topic, instant)
        for partition, end in latest.items():
            reached = ingested[partition]
            if offsets.get(partition, reached) == reached < end:
                raise NotArchived(
                    f"{topic.full_name}, partition {partition}: records before {instant.isoformat()} may be missing; "
                    f"ingest has reached the offset {reached}, its frontier, of {end}.",
                    hint="Ask for an earlier time, or wait until the stream has taken them in.",
                    frontier=reached,
                )

    def archived(self, topic: str, some: Spans) -> dict[int, list[Range]]:
        """Filters offsets to those that the archive has."""
        runs = self._archive.runs(topic)
        return within(some, {p: [(bounds.start, bounds.end) for bounds in here] for p, here in runs.items()})

    def still_on_broker(self, topic: str, some: Spans) -> dict[int, list[Range]]:
        """Filters offsets to those that the broker has on its own disk, without fetching archived segments."""
        return within(some, {p: [(on.earliest_local, on.latest)] for p, on in self._on_broker(topic).items()})

    def copies(self, topic: str, some: Spans) -> tuple[DataFrame, DataFrame]:
        """Reads the raw records of these offsets, columns of `RECORD`, twice: from the archive and from the broker."""
        from twofold.infra.archive.archive_frame import frame
        from twofold.infra.archive.log_union import broker_frame

        spark, settings = self.platform.spark, self.platform.lake.settings
        parts = list(batches_of_size(some))
        archived = [frame(spark, self._archive, {topic: part}, RECORD) for part in parts]
        served = [broker_frame(spark, settings, topic, part, RECORD) for part in parts]
        return _union(archived), _union(served)

    def in_transactions(self, topic: str, holes: Spans) -> dict[int, list[Range]]:
        """Returns the parts of these offsets, without committed records, that hold markers or aborted records.

        Raises:
            BrokerUnreachable: retryable.
        """
        # The archive reader refuses a segment with a missing offset: an offset without a record has none.
        archived = self.archived(topic, holes)
        if rest := subtract(holes, archived):
            for partition, here in in_transactions(self.platform.lake.settings, topic, rest).items():
                archived[partition] = sorted([*archived.get(partition, ()), *here])
        return archived

    def read(self, topic: Topic, ranges: Ranges) -> DataFrame:
        """Reads the records of `[start, end)` of each partition, with the columns of `raw_columns(topic)`, in no order.

        Offsets that are known to be lost are left out.

        Raises:
            LogGap: neither the archive nor the broker has all the rest; names the missing offsets.
            NotArchived: the log ends before the end of a range.
            BrokerUnreachable: retryable.
        """
        from twofold.infra.archive.log_union import log_frame

        columns = raw_columns(topic)
        p = self.platform
        log = read_ingested_offsets(p.lake, topic).log
        lost = [gap for gap in gaps(p.lake, topic.full_name) if gap.log == log]
        frames = [
            log_frame(p.spark, p.lake.settings, self._archive, topic.full_name, part, columns).select(*columns)
            for part in between_gaps(ranges, lost) or [{}]
        ]
        return _union(frames)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def offsets_at(lake: Lake, topic: Topic, instant: datetime) -> dict[int, int]:
    """Returns the first ingested offset of each partition that the broker appended at that instant or later.

    It is computed from events and quarantine, without the log; the end of the ingested offsets if there is no such
    record.
    """
    ends = dict(read_ingested_offsets(lake, topic).ends)
    connection = duckdb_utc()
    for name in (topic.full_name, topic.full_name + QUARANTINE):
        connection.register("rows", lake.open(name).scan(columns=[PARTITION, OFFSET, APPENDED_AT]))
        for partition, offset in connection.execute(
            f"SELECT {PARTITION}, min({OFFSET}) FROM rows WHERE {APPENDED_AT} >= ? AND {OFFSET} IS NOT NULL GROUP BY 1",
            [instant],
        ).fetchall():
            ends[partition] = min(offset, ends.get(partition, offset))
    return ends
