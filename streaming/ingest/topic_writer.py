"""Writes raw records of one topic to its events and its quarantine, each offset once."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from socket import gethostname
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra import COMMAND
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.encodings.record_format import MARK, OPERATION
from twofold.infra.errors import DefinitionChanged, LogGap, WriteConflict
from twofold.infra.offset_ranges import Ranges, condition
from twofold.infra.rows.rows import are_here, is_empty
from twofold.infra.rows.sizes import is_small
from twofold.tables.declare.metadata_columns import APPENDED_AT, LATE_BY_MS, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import FINGERPRINT, Accepted, accept, accepted_code
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.ingested_offsets import (
    APPENDED_MS,
    GAP,
    IDLE,
    INGEST,
    MARKS,
    IngestedOffsets,
    read_ingested_offsets,
)
from twofold.tables.refresh.events.lateness import LATENESS, lateness_counts
from twofold.tables.refresh.events.record_decoder import (
    REASONS,
    Decoder,
    accepted,
    decode_frame,
    events_schema,
    heartbeat,
    raw_columns,
    reject_frame,
    rejected,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from twofold.infra.project.settings import Settings

R = TypeVar("R", "pa.Table", "DataFrame")
PLACE = (PARTITION, OFFSET)
_ATTEMPTS = 2
_log = logging.getLogger("twofold.ingest")


class TopicWriter:
    """Writes raw records, in micro-batches of consecutive offsets, to one topic's two Delta tables.

    Records may come from the broker or the archive; repeated ones add only what is missing.

    Attributes:
        raw_columns: the columns of raw records that decoding needs.
        events: the frontier of the events table.
        began: partition -> the first offset of the log, for a table that has nothing of the partition.
        log: the topic's id on the broker; empty: not known.
        appended_ms: the time when the broker appended the newest record written here, epoch milliseconds.
        moved_ms: the position of the log when this topic's time was last moved, or could have been.
    """

    def __init__(self, spark: SparkSession, lake: Lake, topic: Topic) -> None:
        self._spark, self._lake, self._topic = spark, lake, topic
        self._decoder = Decoder(topic)
        self._decoding = decoding(topic)
        self.raw_columns = raw_columns(topic)
        self.began: Mapping[int, int] = {}
        self.log = ""
        self.appended_ms: int | None = None
        self.moved_ms: int | None = None
        self._expected = ""  # a decoding other than its own that may be accepted meanwhile; empty: unknown yet
        self._driver = f"process {os.getpid()} on {gethostname()}, home {lake.settings.home}"
        self._events_writer = Writer(lake, topic.full_name, spark)
        self._quarantine_writer = Writer(lake, topic.full_name + QUARANTINE, spark, compact)
        self.reload()

    def reload(self) -> None:
        """Reads the frontiers of the tables, which another driver may have advanced. Raises as `_mark_decoding`."""
        self._version: int | None = None
        while True:
            self.events = read_ingested_offsets(self._lake, self._topic)
            self._quarantine = read_ingested_offsets(self._lake, self._topic, quarantine=True)
            if not self._mark_decoding():
                return

    def _mark_decoding(self) -> bool:
        """Records, before the first such record, from which offsets on records are decoded in another way.

        A compacted topic accepts the new decoding from there on, since its log no longer has the older records. Returns
        whether a record was made, so that the frontiers must be read again.

        Raises:
            DefinitionChanged: another decoding than that of this process was accepted meanwhile.
        """
        name, own = self._topic.full_name, self._decoding
        fact = accepted_code(self._lake, name)
        self._expected = self._expected or (fact.code if fact else "")
        if fact is None or fact.code == own:
            return False
        if fact.code != self._expected:
            raise DefinitionChanged(
                f"{name}: its records are decoded by {fact.code} now; this process decodes by {own}.",
                hint=f"Start the driver again, so that it loads the declaration: `{COMMAND} down`, `{COMMAND} up`.",
                table=name,
            )
        if not fact.is_whole:
            return False
        ends = {str(p): end for p, end in self.events.ends.items()}
        marked = Accepted(code=own, since=ends) if self._topic.compacted else replace(fact, through=ends)
        accept(self._lake, name, marked, instead_of=fact)
        return True

    def take(self, raw: pa.Table, ranges: Ranges) -> None:
        """Writes the records of one micro-batch from this process, in the order of the log.

        Raises:
            LogGap: offsets before the micro-batch were never ingested.
            WriteConflict: another driver ingests the topic. Retryable.
        """
        self._take(raw, ranges, self._write)

    def take_frame(self, raw: DataFrame, ranges: Ranges) -> None:
        """Writes the records of a large micro-batch through Spark, decoding them once in its workers.

        Args:
            raw: the records of each partition of the topic in one Spark partition, in the order of the log, as a
                consumer returns them: streams keep the first one of repeated records.

        Raises:
            LogGap: offsets before the micro-batch were never ingested.
            WriteConflict: another driver ingests the topic. Retryable.
        """
        self._take(raw, ranges, self._write_frame)

    def _take(self, raw: R, ranges: Ranges, write: Callable[[R, Ranges], bool]) -> None:
        """Writes missing records, decoded under the frontier that the commit continues."""
        for _ in range(_ATTEMPTS):
            self._look()
            self._require_no_gap(ranges)
            done, new = self.events.within(ranges), self.events.beyond(ranges)
            if done:
                self._settle(_within(raw, done), done)
            if not new or write(self._undecided(_within(raw, new) if done else raw, new), ranges):
                return
            self.reload()
        raise self._lost_to_another_driver()

    def _write(self, raw: pa.Table, ranges: Ranges) -> bool:
        decoded = self._decoder.decode(raw, self.events.newest_ms)
        after = self.events.after(ranges, _newest_ms(decoded.accepted, self._topic.event_time))
        records = self._without_marks(decoded.accepted)
        cause = MARKS if len(decoded.accepted) and not len(records) else "ingest"
        # Events first: their commit decides on which side each record is, also for a process with other rules.
        known: dict[str, object] = {LATENESS: lateness_counts(records[LATE_BY_MS])}
        if (appended_ms := _newest_ms(records, APPENDED_AT)) is not None:
            known[APPENDED_MS] = appended_ms
        if not self._commit(decoded.accepted, after, cause=cause, known=known):
            return False
        if len(decoded.rejected) and not self._commit_quarantine(decoded.rejected, ranges):
            self._settle(raw, ranges)
        self._seen(_newest_ms(decoded.accepted, APPENDED_AT))
        return True

    def _write_frame(self, raw: DataFrame, ranges: Ranges) -> bool:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        newest_ms = self.events.newest_ms
        decoded = decode_frame(raw, self._topic, newest_ms)
        seen = Observation()
        observed = decoded.observe(
            seen,
            F.count(REASONS).alias("rejected"),
            F.max(F.unix_millis(self._topic.event_time)).alias("newest_ms"),
            F.max(F.when(F.col(REASONS).isNull(), F.unix_millis(APPENDED_AT))).alias("appended_ms"),
        )
        # The newest event time is known only once the rows are written: this commit says that it does not know it.
        after = replace(self.events.after(ranges, None), newest_ms=None)
        if not self._commit(accepted(observed, self._topic), after):
            return False
        facts = seen.get
        if facts["rejected"] and not self._commit_quarantine(rejected(decoded), ranges):
            self._settle(raw, ranges)
        self._seen(facts["appended_ms"])
        instants = [ms for ms in (newest_ms, facts["newest_ms"]) if ms is not None]
        self.events = replace(self.events, newest_ms=max(instants, default=None))
        return True

    def _without_marks(self, events: pa.Table) -> pa.Table:
        if not self._topic.has_marks:
            return events
        return events.filter(pc.not_equal(events[OPERATION], MARK))

    def move(self, event_ms: int, log_ms: int) -> None:
        """Advances the topic's event time without a record.

        The commit adds one row to the events, where streams expect it by `_late_by_ms` of later records.

        Args:
            event_ms: the new event time of the topic, epoch milliseconds.
            log_ms: the position of the log of all topics at that moment, epoch milliseconds.
        """
        row = heartbeat(self._topic, event_ms, log_ms, self.events.newest_ms)
        if self._commit(row, self.events.moved(event_ms), cause=IDLE):
            self.moved_ms = log_ms
            _log.info("idle topic=%s moved_to=%d", self._topic.full_name, event_ms)
        else:
            self.reload()

    def skip(self, ranges: Ranges) -> None:
        """Moves the frontier past lost offsets; the ledger of gaps must name them.

        Raises:
            WriteConflict: another driver ingests the topic. Retryable.
        """
        for _ in range(_ATTEMPTS):
            self._require_no_gap(ranges)
            nothing = events_schema(self._topic).empty_table()
            if not self.events.beyond(ranges) or self._commit(nothing, self.events.after(ranges, None), cause=GAP):
                return
            self.reload()
        raise self._lost_to_another_driver()

    def _seen(self, appended_ms: int | None) -> None:
        """Records when the newest good record of a micro-batch was appended; bad ones have no time."""
        if appended_ms is not None:
            self.appended_ms = max(appended_ms, self.appended_ms or 0)
            self.moved_ms = None

    def _commit(
        self,
        rows: pa.Table | DataFrame,
        after: IngestedOffsets,
        *,
        cause: str = "ingest",
        known: Mapping[str, object] | None = None,
    ) -> bool:
        """Appends to the events; False if another driver has advanced the frontier that `after` follows.

        Args:
            known: what the commit says of its rows, `APPENDED_MS` and `LATENESS`; None: not known before the write.
        """
        after = replace(after, log=self.log, driver=self._driver)
        stamp = _stamp(after, cause)
        stamp = replace(stamp, info={**stamp.info, FINGERPRINT: self._decoding, **(known or {})})
        written = self._events_writer.append(rows, stamp)
        if written.skipped:
            return False
        self.events, self._version = after, written.version
        self._expected = self._expected or self._decoding  # the first rows are of it
        return True

    def _commit_quarantine(self, rows: pa.Table | DataFrame, ranges: Ranges) -> bool:
        """Appends to the quarantine; False if another driver has done so since the frontier was read."""
        after = replace(self._quarantine.after(ranges, None), log=self.log, driver=self._driver)
        rows = rows if (cover := self._topic.cover) is None else cover.quarantined(rows, self._lake.settings)
        if self._quarantine_writer.append(rows, _stamp(after, "ingest")).skipped:
            return False
        self._quarantine = after
        return True

    def _look(self) -> None:
        """Reads the frontier again if others have committed; a restore moves it back without a new number."""
        version = self._events_writer.newest().version()
        if version != self._version:
            info = self._lake.newest_info(self._topic.full_name, "ends", at=version)
            if info is not None and {int(p): end for p, end in info["ends"].items()} != self.events.ends:
                self.reload()

    def _settle(self, raw: R, ranges: Ranges) -> None:
        """Quarantines records that the events have passed without including, if the quarantine lacks them.

        A driver may have ended between the two commits, and this one may decode by other rules.
        """
        for _ in range(_ATTEMPTS):
            self._quarantine = read_ingested_offsets(self._lake, self._topic, quarantine=True)
            self._mark_decoding()
            left = self._without(raw, ranges, (self._topic.full_name, self._topic.full_name + QUARANTINE))
            rows = self._decoder.reject(left) if are_here(left) else reject_frame(left, self._topic)
            if is_empty(rows) or self._commit_quarantine(rows, ranges):
                return
        raise self._lost_to_another_driver()

    def _undecided(self, raw: R, ranges: Ranges) -> R:
        """Filters records to those not in quarantine; a restore of the events leaves later ones there."""
        if not self._quarantine.within(ranges):
            return raw
        return self._without(raw, ranges, (self._topic.full_name + QUARANTINE,))

    def _without(self, raw: R, ranges: Ranges, names: Sequence[str]) -> R:
        """Filters records of these offsets to those that none of the tables has, in the same order."""
        if are_here(raw):
            tables = [
                self._lake.open(name).scan(columns=list(PLACE), predicate=condition(ranges, PARTITION, OFFSET))
                for name in names
            ]
            there = pa.concat_tables([pa.table(rows) for rows in tables])
            for partition in ranges:
                offsets = there.filter(pc.field(PARTITION) == partition)[OFFSET].combine_chunks()
                raw = raw.filter((pc.field("partition") != partition) | ~pc.field("offset").isin(offsets))
            return raw
        from pyspark.sql import functions as F

        for name in names:
            there = F.broadcast(
                self._lake.frame(self._spark, name).where(condition(ranges, PARTITION, OFFSET)).select(*PLACE)
            )
            same = [raw["partition"] == there[PARTITION], raw["offset"] == there[OFFSET]]
            raw = raw.join(there, same, "left_anti")
        return raw

    def _lost_to_another_driver(self) -> WriteConflict:
        self.reload()
        by = self.events.driver or "a process that does not say which"
        return WriteConflict(
            f"{self._topic.full_name}: another driver ingests the same topic, and was faster {_ATTEMPTS} times: {by}.",
            hint=f"Stop one of the drivers: `{COMMAND} status` in each home lists them.",
        )

    def _require_no_gap(self, ranges: Ranges) -> None:
        if any(start > self._end(partition) for partition, (start, _) in ranges.items()):
            self.reload()
        for partition, (start, _) in ranges.items():
            end = self._end(partition)
            if start > end:
                raise LogGap(
                    f"{self._topic.full_name}, partition {partition}: the events table ends before offset {end} and "
                    f"the stream goes on at {start}: [{end}, {start}) would be lost.",
                    hint="The table was restored or the checkpoint belongs to another one. Remove the checkpoint "
                    f"{self._lake.settings.checkpoints / self._topic.domain / 'ingest'}: ingest then goes on where the "
                    "table ends.",
                )

    def _end(self, partition: int) -> int:
        return self.events.ends.get(partition, self.began.get(partition, 0))


def size_of(raw: DataFrame) -> int:
    """Computes the bytes of records, by reading them."""
    [row] = raw.selectExpr("sum(coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0))").collect()
    return int(row[0] or 0)


def read_if_small(settings: Settings, raw: DataFrame, records: int) -> pa.Table | None:
    """Reads the records into this process if they fit, else returns None; they are read twice."""
    fits = is_small(settings, records) and is_small(settings, records, record_bytes=size_of(raw))
    return raw.toArrow() if fits else None


def in_log_order(raw: DataFrame, ranges: Ranges) -> DataFrame:
    """Sorts records that were read from many files at once into the order of the log."""
    return raw.repartition(len(ranges), "partition").sortWithinPartitions("partition", "offset")


def _stamp(after: IngestedOffsets, cause: str) -> CommitTag:
    return CommitTag(app=INGEST, version=after.number, info={"cause": cause, **after.info})


def _within(raw: R, ranges: Ranges) -> R:
    """Filters records to these offsets."""
    if not are_here(raw):
        return raw.where(condition(ranges, "partition", "offset"))
    partition, offset = pc.field("partition"), pc.field("offset")
    parts = [(partition == p) & (offset >= start) & (offset < end) for p, (start, end) in ranges.items()]
    selected: R = raw.filter(reduce(operator.or_, parts))
    return selected


def _newest_ms(events: pa.Table, column: str) -> int | None:
    newest = pc.max(events[column].cast(pa.int64())).as_py()
    return None if newest is None else newest // 1000
