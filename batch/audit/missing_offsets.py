"""Finds the offsets at which a log has no record, and which of them transactions explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batch.log_reader import Log
from infra.errors import BrokerUnreachable, LogGap, NotArchived
from infra.offset_ranges import Range, Ranges, Spans, within
from tables.engine.checks.completeness import missing
from tables.engine.declarations.declaration import Topic
from tables.engine.events.ingested_offsets import read_ingested_offsets
from tables.engine.events.record_decoder import OFFSET, PARTITION
from tables.engine.ledgers.transaction_offsets import record
from tables.engine.refresh.open_platform import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE = "_before"


def missing_offsets(records: DataFrame, ranges: Ranges) -> dict[int, list[Range]]:
    """The offsets of ranges that no record has, by partition, as ranges in order.

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
    found: dict[int, list[Range]] = {}
    for row in behind_holes.orderBy(PARTITION, OFFSET).toArrow().to_pylist():
        found.setdefault(row[PARTITION], []).append((row[_BEFORE] + 1, row[OFFSET]))
    return found


def explain_missing(platform: Platform, topic: Topic) -> bool:
    """Look into the log, from the first to the last offset that is missing, and note what transactions fill.

    An offset at which the log gives a record stays missing, and so does every one of a log that cannot be read.

    Returns:
        Whether it explains anything.
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
    """What explains offsets at which the log gives no record; the ledger names it from then on.

    Transactions fill some. Of a compacted topic the broker has removed the others.

    Raises:
        BrokerUnreachable: retryable.
    """
    if topic.compacted:
        found = {partition: list(here) for partition, here in empty.items()}
    else:
        found = log.in_transactions(topic.full_name, empty)
    record(platform.lake, topic.full_name, read_ingested_offsets(platform.lake, topic).log, found, platform.spark)
    return found
