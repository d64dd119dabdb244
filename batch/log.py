"""Raw records of topics in ranges of offsets, as they once reached ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from infra.archive.catalog import open_archive
from infra.archive.union import log_frame
from infra.topics import offsets
from tables.declaration import Topic
from tables.decode import APPENDED_AT, OFFSET, PARTITION, RAW_SCHEMA
from tables.difference import duckdb_utc
from tables.frontier import frontier
from tables.gaps import between_gaps, gaps
from tables.lake import QUARANTINE, Lake
from tables.setup import Platform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from infra.archive.plan import Archive

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Log:
    """The log of some topics: the archive where it has it, the broker for the rest."""

    platform: Platform
    topics: Sequence[str]

    @cached_property
    def _archive(self) -> Archive:
        return open_archive(self.platform.lake.settings, self.topics)

    def starts(self, topic: str) -> dict[int, int]:
        """The first offset of each partition that there still is.

        Raises:
            BrokerUnreachable: retryable.
        """
        archived = self._archive.bounds(topic)
        on_broker = offsets(self.platform.lake.settings, [topic])[topic]
        return {
            partition: min(bounds.earliest, archived[partition].start) if partition in archived else bounds.earliest
            for partition, bounds in on_broker.items()
        }

    def read(self, topic: Topic, ranges: Ranges) -> DataFrame:
        """The records of `[start, end)` of each partition, with the columns of `RAW_SCHEMA`, in no order.

        What is known to be lost is left out.

        Raises:
            LogGap: neither the archive nor the broker has all the rest; names what is missing.
            NotArchived: the log ends before it.
            BrokerUnreachable: retryable.
        """
        columns = RAW_SCHEMA.names
        p = self.platform
        log = frontier(p.lake, topic).log
        lost = [gap for gap in gaps(p.lake, topic.full_name) if gap.log == log]
        frames = [
            log_frame(p.spark, p.lake.settings, self._archive, topic.full_name, part, columns).select(*columns)
            for part in between_gaps(ranges, lost) or [{}]
        ]
        return reduce(lambda one, other: one.unionByName(other), frames)


def offsets_at(lake: Lake, topic: Topic, instant: datetime) -> dict[int, int]:
    """Of each partition the first offset that the broker appended at that instant or later, of what was ingested.

    It is told from events and quarantine, so that the log need not be asked; the end of what was ingested where nothing
    came since.
    """
    found = dict(frontier(lake, topic).ends)
    connection = duckdb_utc()
    for name in (topic.full_name, topic.full_name + QUARANTINE):
        connection.register("rows", lake.open(name).scan(columns=[PARTITION, OFFSET, APPENDED_AT]))
        for partition, offset in connection.execute(
            f"SELECT {PARTITION}, min({OFFSET}) FROM rows WHERE {APPENDED_AT} >= ? AND {OFFSET} IS NOT NULL GROUP BY 1",
            [instant],
        ).fetchall():
            found[partition] = min(offset, found.get(partition, offset))
    return found
