"""A log of few records, in memory, and what two tables must have of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tables.declared import a_topic
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.instants import epoch_ms
from twofold.infra.offset_ranges import Ranges
from twofold.streaming.ingest.topic_writer import TopicWriter
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, RAW_SCHEMA, events_schema

APPENDED = datetime(2013, 1, 1, tzinfo=UTC)
BAD = b"no JSON"


def reading(second: int, value: float = 1.0) -> bytes:
    """A good record, read so many seconds before it was appended."""
    read_at = APPENDED - timedelta(hours=1) + timedelta(seconds=second)
    return json.dumps({"sensor": "a", "read_at": read_at.isoformat(), "value": value, "count": None}).encode()


@dataclass
class SmallLog:
    """The log of one topic, and the lake into which drivers ingest it.

    Attributes:
        values: partition -> the records by offset.
    """

    lake: Lake
    topic: Topic = field(default_factory=a_topic)
    values: dict[int, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.topic.full_name
        self.lake.ensure(self.name, events_schema(self.topic), statistics=[PARTITION, OFFSET])
        self.lake.ensure(self.name + QUARANTINE, QUARANTINE_SCHEMA, statistics=[PARTITION, OFFSET])

    def driver(self, topic: Topic | None = None, spark: Any = None) -> TopicWriter:
        """One that has just started, with these rules or those of the log's topic."""
        return TopicWriter(cast(Any, spark), self.lake, topic or self.topic)

    def raw(self, ranges: Ranges) -> pa.Table:
        """The records of these offsets, as a consumer has them."""
        places = [(p, offset) for p, (start, end) in sorted(ranges.items()) for offset in range(start, end)]
        return pa.table(
            [
                pa.array([p for p, _ in places], pa.int32()),
                pa.array([offset for _, offset in places], pa.int64()),
                pa.array([APPENDED] * len(places), pa.timestamp("us", tz="UTC")),
                pa.array([b"a"] * len(places), pa.binary()),
                pa.array([self.values[p][offset] for p, offset in places], pa.binary()),
            ],
            schema=RAW_SCHEMA,
        )

    def take(self, driver: TopicWriter, ranges: Ranges, spark: Any = None) -> None:
        """Let the driver ingest these offsets, through Spark where a session is given."""
        if spark is None:
            driver.take(self.raw(ranges), ranges)
        else:
            driver.take_frame(spark.createDataFrame(self.raw(ranges)).coalesce(1), ranges)

    def places(self, name: str) -> list[tuple[int, int]]:
        rows = pa.table(self.lake.open(name).scan(columns=[PARTITION, OFFSET])).to_pylist()
        return sorted((row[PARTITION], row[OFFSET]) for row in rows if row[OFFSET] is not None)

    @property
    def accepted(self) -> list[tuple[int, int]]:
        return self.places(self.name)

    @property
    def rejected(self) -> list[tuple[int, int]]:
        return self.places(self.name + QUARANTINE)

    def faults(self, ends: dict[int, int]) -> list[str]:
        """What is wrong with the tables if the log was ingested up to these offsets; nothing when all is right."""
        there = Counter(self.accepted + self.rejected)
        wanted = Counter((p, offset) for p, end in ends.items() for offset in range(end))
        found = [f"missing {place}" for place in sorted((wanted - there).elements())]
        found += [f"too many {place}" for place in sorted((there - wanted).elements())]
        return found + late_faults(self.lake, self.topic) + frontier_faults(self.lake, self.topic)


def late_faults(lake: Lake, topic: Topic) -> list[str]:
    """Rows whose lateness is not that against what was committed before them."""
    found: list[str] = []
    newest_ms: int | None = None
    for commit in lake.commits(topic.full_name, 0, lake.version(topic.full_name)):
        if not commit.changes:
            continue
        paths = [f"{lake.uri(topic.full_name)}/{added.path}" for added in commit.added]
        rows = [row for path in paths for row in pq.read_table(path).to_pylist() if not row[REPLAYED]]
        times = [cast(int, epoch_ms(row[topic.event_time])) for row in rows]
        for row, ms in zip(rows, times, strict=True):
            if row[LATE_BY_MS] != (None if newest_ms is None else newest_ms - ms):
                found.append(f"{topic.full_name}: late by {row[LATE_BY_MS]} {row[PARTITION], row[OFFSET]}")
        newest_ms = max([*times, *([] if newest_ms is None else [newest_ms])], default=None)
    return found


def frontier_faults(lake: Lake, topic: Topic) -> list[str]:
    """Commits whose frontier lies before that of an older one."""
    found: list[str] = []
    before: dict[str, int] = {}
    for commit in lake.commits(topic.full_name, 0, lake.version(topic.full_name)):
        ends = commit.info.get("ends", before)
        found += [f"{topic.full_name}: back to {ends}" for p, end in before.items() if ends.get(p, 0) < end]
        before = ends
    return found
