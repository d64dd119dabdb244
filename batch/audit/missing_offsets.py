"""Finds the offsets at which a log has no record, and those that transactions explain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from twofold.batch.audit.completeness import missing
from twofold.batch.log_reader import Log
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BrokerUnreachable, LogGap, NotArchived
from twofold.infra.offset_ranges import Range, Ranges, Spans, subtract, within
from twofold.tables.declare.metadata_columns import APPENDED_AT, OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.lost_offsets import Gap
from twofold.tables.refresh.events.topic_specs import TOMBSTONES_MS
from twofold.tables.refresh.events.transaction_offsets import record
from twofold.tables.refresh.open_platform import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE = "_before"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def missing_offsets(records: DataFrame, ranges: Ranges) -> dict[int, list[Range]]:
    """Returns the offsets of ranges that no record has, by partition, as ordered ranges.

    Args:
        records: with the columns `_partition` and `_offset`, all of them within the ranges.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    edges = [(partition, edge) for partition, (start, end) in ranges.items() for edge in (start - 1, end)]
    around = records.sparkSession.createDataFrame(edges, f"{PARTITION} int, {OFFSET} bigint")
    offsets = records.select(PARTITION, OFFSET).unionByName(around)
    in_order = Window.partitionBy(PARTITION).orderBy(OFFSET)
    behind_holes = offsets.withColumn(_BEFORE, F.lag(OFFSET).over(in_order)).where(f"{OFFSET} > {_BEFORE} + 1")
    missing: dict[int, list[Range]] = {}
    for row in behind_holes.orderBy(PARTITION, OFFSET).toArrow().to_pylist():
        missing.setdefault(row[PARTITION], []).append((row[_BEFORE] + 1, row[OFFSET]))
    return missing


def explain_missing(platform: Platform, topic: Topic) -> bool:
    """Reads the log between the first and the last missing offset, and records the offsets that transactions explain.

    An offset at which the log has a record stays missing, and so do all offsets of a log that cannot be read.

    Returns:
        Whether it explains any.
    """
    lacking = missing(platform.lake, topic)
    around = {partition: (here[0][0], here[-1][1]) for partition, here in lacking.items()}
    log = Log(platform, [topic.full_name])
    try:
        places = log.read(topic, around).selectExpr(f"partition AS {PARTITION}", f"offset AS {OFFSET}")
        return bool(note_transactions(platform, topic, log, within(missing_offsets(places, around), lacking)))
    except (BrokerUnreachable, LogGap, NotArchived):
        return False


def note_transactions(platform: Platform, topic: Topic, log: Log, empty: Spans) -> dict[int, list[Range]]:
    """Records in the ledger the transactions that explain offsets without a record in the log.

    The broker may also have removed records of a compacted topic; those that may have been unread tombstones are
    recorded as gaps, which a person has to acknowledge.

    Raises:
        BrokerUnreachable: retryable.
    """
    lake, name, session = platform.lake, topic.full_name, platform.spark
    known = read_ingested_offsets(lake, topic).log
    if topic.compacted:
        explained = {partition: list(here) for partition, here in empty.items()}
        unread = unread_tombstones(lake, topic, empty, datetime.now(UTC))
        if unread:
            lost_offsets.record(lake, [replace(gap, log=known) for gap in unread], session)
            explained = subtract(explained, lost_offsets.places(unread))
    else:
        explained = log.in_transactions(name, empty)
    record(lake, name, known, explained, session)
    return explained


def unread_tombstones(lake: Lake, topic: Topic, empty: Spans, now: datetime) -> list[Gap]:
    """Returns the offsets of a compacted topic at which the broker may have removed a tombstone before it was read.

    The broker keeps a tombstone for `TOMBSTONES_MS` after the removal of older records of the key. A reader misses none
    if it has read the record before the hole, or has begun to read the topic, less than that time ago.

    Args:
        empty: offsets that the log no longer has.
        now: the latest time at which the reader had passed them.
    """
    kept = timedelta(milliseconds=TOMBSTONES_MS)
    events = lake.open(topic.full_name)
    if now - _EPOCH - timedelta(milliseconds=events.metadata().created_time or 0) < kept:
        return []
    unread = []
    for partition, holes in empty.items():
        for start, end in holes:
            before = f"{PARTITION} = {partition} AND {OFFSET} < {start}"
            appended = pa.table(events.scan(columns=[APPENDED_AT], predicate=before))[APPENDED_AT]
            last = pc.max(appended).as_py()
            if last is not None and now - last >= kept:
                why = (
                    f"a tombstone may have been removed before it was read, the record before is of {last:%Y-%m-%d}; "
                    "publish a tombstone again for each key that is gone"
                )
                unread.append(
                    Gap(topic=topic.full_name, partition=partition, start=start, end=end, recorded_at=now, why=why)
                )
    return unread
