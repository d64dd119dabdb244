"""Raw records of one topic to its events and its quarantine, each offset once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from infra.errors import LogGap
from infra.ranges import Ranges
from tables.declaration import Topic
from tables.decode import (
    APPENDED_AT,
    OFFSET,
    PARTITION,
    REASONS,
    Decoder,
    accepted,
    decode_frame,
    events_schema,
    heartbeat,
    rejected,
)
from tables.frontier import INGEST, Frontier, frontier
from tables.lake import QUARANTINE, Lake
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from infra.settings import Settings

_log = logging.getLogger("twofold.ingest")


class Feed:
    """Takes raw records, in micro-batches whose offsets follow each other, into one topic's two Delta tables.

    Whoever hands them over, the broker or the archive, what comes again adds only what is not there.

    Attributes:
        events: how far the events table has come.
        began: partition -> where the log begins for a table that has nothing of it.
        log: the topic's id on the broker; empty: not known.
        appended_ms: when the broker got the newest record that was taken here, epoch milliseconds.
        moved_ms: how far the log had come when it was last moved, or could have been.
    """

    def __init__(self, spark: SparkSession, lake: Lake, topic: Topic) -> None:
        self._lake, self._topic = lake, topic
        self._decoder = Decoder(topic)
        self.began: Mapping[int, int] = {}
        self.log = ""
        self.appended_ms: int | None = None
        self.moved_ms: int | None = None
        self._writers = (
            Writer(lake, topic.full_name, spark),
            Writer(lake, topic.full_name + QUARANTINE, spark),
        )
        self._reload()

    def _reload(self) -> None:
        self.events = frontier(self._lake, self._topic)
        self._quarantine = frontier(self._lake, self._topic, quarantine=True)

    def take(self, raw: pa.Table, ranges: Ranges) -> None:
        """Write the records of one micro-batch, in the order of the log, from this process."""
        self._require_no_gap(ranges)
        decoded = self._decoder.decode(raw, self.events.newest_ms)
        newest = _newest_ms(decoded.accepted, self._topic.event_time)
        # Quarantine first: the events' commit says that the micro-batch is in, so it must be the last.
        if len(decoded.rejected):
            self._commit(decoded.rejected, ranges, None, quarantine=True)
        self._commit(decoded.accepted, ranges, newest, quarantine=False)
        self._seen(_newest_ms(decoded.accepted, APPENDED_AT))

    def take_frame(self, raw: DataFrame, ranges: Ranges) -> None:
        """Write the records of a large micro-batch through Spark, decoding them once in its workers.

        Args:
            raw: the records of each partition of the topic in one of Spark's, in the order of the log, as a consumer
                gives them: of records that repeat each other the streams take the one that they read first.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        self._require_no_gap(ranges)
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
        self.events = replace(self.events, newest_ms=None)
        wrote = self._commit(accepted(observed, self._topic), ranges, None, quarantine=False)
        # An observation is made by the write alone: where that was done before a crash, it would never come.
        facts = seen.get if wrote else {}
        if facts.get("rejected", 1):
            self._commit(rejected(decoded), ranges, None, quarantine=True)
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
        stamp = Stamp(app=INGEST, version=after.number, info={"cause": "idle", **after.info, "log": self.log})
        row = heartbeat(self._topic, event_ms, log_ms, self.events.newest_ms)
        if self._writers[False].append(row, stamp).skipped:
            self._reload()
        else:
            self.events, self.moved_ms = after, log_ms
            _log.info("idle topic=%s moved_to=%d", self._topic.full_name, event_ms)

    def skip(self, ranges: Ranges) -> None:
        """Go on behind offsets that are lost; the ledger of gaps must name them."""
        self._require_no_gap(ranges)
        nothing = events_schema(self._topic).empty_table()
        self._commit(nothing, ranges, None, quarantine=False, cause="gap")

    def _seen(self, appended_ms: int | None) -> None:
        """Note when the newest good record of a micro-batch was appended; bad ones tell no time."""
        if appended_ms is not None:
            self.appended_ms = max(appended_ms, self.appended_ms or 0)
            self.moved_ms = None

    def _commit(
        self,
        rows: pa.Table | DataFrame,
        ranges: Ranges,
        newest_ms: int | None,
        *,
        quarantine: bool,
        cause: str = "ingest",
    ) -> bool:
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
            stamp = Stamp(app=INGEST, version=after.number, info={"cause": cause, **after.info, "log": self.log})
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


def is_large(settings: Settings, records: int) -> bool:
    """Whether a micro-batch is for Spark's workers, not for this process."""
    return settings.engine == "spark" or (settings.engine == "auto" and records > settings.small_rows)


def in_log_order(raw: DataFrame, ranges: Ranges) -> DataFrame:
    """Records that come from many files at once, in the order in which a consumer would have them."""
    return raw.repartition(len(ranges), "partition").sortWithinPartitions("partition", "offset")


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
