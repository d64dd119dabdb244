"""Runs the log from its start through the streaming code, into a shadow lake."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from twofold.infra.offset_ranges import Ranges, RangesOf
from twofold.streaming.driver import finish, table_query
from twofold.streaming.ingest.catch_up_plan import chunks
from twofold.streaming.ingest.topic_writer import TopicWriter, in_log_order, read_if_small
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[[Topic, Ranges], "DataFrame"]
"""Raw records of a topic in ranges of offsets, with the columns of `raw_columns`."""

_log = logging.getLogger("twofold.refill")


def reingest(shadow: Platform, wanted: RangesOf, read: Read) -> int:
    """Ingests the offsets that the shadow lacks, and updates all of its tables.

    The records run through the same code as on the live platform, in micro-batches of `max_offsets` records with an
    equal share of each partition. Work of an earlier run is not repeated.

    Args:
        wanted: topic -> partition -> `[start, end)`; all that a table of the shadow reads.

    Returns:
        The number of ingested records.
    """
    _end_newest(shadow, read)
    taken = 0
    for records in ingested(shadow, wanted, read):
        taken += records
        _maintain(shadow)
    _maintain(shadow)  # a run that was cut short may have ingested records that its tables have not read
    return taken


def ingested(shadow: Platform, wanted: RangesOf, read: Read) -> Iterator[int]:
    """Ingests the offsets that the shadow lacks; yields the number of records of each micro-batch after its commit."""
    feeds = {name: TopicWriter(shadow.spark, shadow.lake, topic) for name, topic in shadow.registry.topics.items()}
    for name, ranges in wanted.items():
        feeds[name].began = {partition: start for partition, (start, _) in ranges.items()}
    for chunk in chunks(missing_ranges(shadow, wanted), shadow.lake.settings.max_offsets):
        yield sum(
            _take(feeds[name], shadow, read(shadow.registry.topics[name], ranges), ranges)
            for name, ranges in chunk.items()
        )


def missing_ranges(shadow: Platform, wanted: RangesOf) -> dict[str, Ranges]:
    """Filters these offsets to those that the shadow has not ingested."""
    left: dict[str, Ranges] = {}
    for name, ranges in wanted.items():
        ingested = read_ingested_offsets(shadow.lake, shadow.registry.topics[name]).ends
        starts = {p: max(start, ingested.get(p, start)) for p, (start, _) in ranges.items()}
        left[name] = {p: (starts[p], end) for p, (_, end) in ranges.items() if starts[p] < end}
    return left


def _end_newest(shadow: Platform, read: Read) -> None:
    """Ingests the newest micro-batch again: if it was interrupted, its quarantine may be missing."""
    for name, topic in shadow.registry.topics.items():
        ingested = read_ingested_offsets(shadow.lake, topic)
        ranges = {p: (start, ingested.ends[p]) for p, start in ingested.starts.items() if start < ingested.ends[p]}
        if ranges:
            _take(TopicWriter(shadow.spark, shadow.lake, topic), shadow, read(topic, ranges), ranges)
            _log.info("ended topic=%s ranges=%s", name, ranges)


def _take(feed: TopicWriter, shadow: Platform, frame: DataFrame, ranges: Ranges) -> int:
    rows = read_if_small(shadow.lake.settings, frame, _records(ranges))
    if rows is None:
        feed.take_frame(in_log_order(frame, ranges), ranges)
    else:
        feed.take(rows.sort_by([("partition", "ascending"), ("offset", "ascending")]), ranges)
    return _records(ranges)


def _records(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges.values())


def _maintain(shadow: Platform) -> None:
    for table in shadow.registry.in_order():
        finish(table_query(shadow, table).start(available_now=True))
        _log.info("maintained table=%s rows=%d", table.full_name, shadow.lake.rows(table.full_name))
