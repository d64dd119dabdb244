"""Reads the ingested offsets from the commits of the events table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import query
from twofold.infra.instants import epoch_ms
from twofold.infra.offset_ranges import Range, Ranges
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.topic import Topic
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from deltalake import DeltaTable

INGEST = "ingest"
"""The application under which ingest commits, with the frontier's number as version."""
IDLE, GAP, MARKS = ROWLESS = "idle", "gap", "mark"
"""Why ingest commits without a record that a function sees: a heartbeat, lost offsets, marks in a database's log."""
APPENDED_MS = "appended_ms"
"""The key under which a commit says when the broker got the newest record behind its rows, epoch milliseconds."""


@dataclass(frozen=True)
class IngestedOffsets:
    """The offsets in one Delta table that a topic feeds.

    Attributes:
        ends: partition -> the first offset that is not in the table yet.
        starts: partition -> if the newest micro-batch in it began.
        newest_ms: greatest event time committed, epoch milliseconds; None when there is none.
        number: commits of ingest so far. Each commit takes the next number, so of several drivers that believe in one
            frontier one can go on from it.
        log: the topic's id on the broker when that was committed; empty: not known.
        driver: the process that committed it; empty: not known.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    newest_ms: int | None = None
    number: int = 0
    log: str = ""
    driver: str = ""

    def after(self, ranges: Ranges, newest_ms: int | None) -> IngestedOffsets:
        """Returns the frontier after a micro-batch that begins at or before it."""
        newest = [ms for ms in (self.newest_ms, newest_ms) if ms is not None]
        starts_at = {p: max(start, self.ends.get(p, start)) for p, (start, _) in ranges.items()}
        return replace(
            self,
            ends={**self.ends, **{p: max(starts_at[p], end) for p, (_, end) in ranges.items()}},
            starts={**self.starts, **starts_at},
            newest_ms=max(newest, default=None),
            number=self.number + 1,
        )

    def moved(self, newest_ms: int) -> IngestedOffsets:
        """Returns the frontier after a heartbeat."""
        return replace(self, newest_ms=newest_ms, number=self.number + 1)

    def within(self, ranges: Ranges) -> Ranges:
        """Returns the part of these offsets before the frontier."""
        ingested = {p: (start, min(end, self.ends.get(p, start))) for p, (start, end) in ranges.items()}
        return {p: (start, end) for p, (start, end) in ingested.items() if start < end}

    def beyond(self, ranges: Ranges) -> Ranges:
        """Returns the part of these offsets at or after the frontier."""
        rest = {p: (max(start, self.ends.get(p, start)), end) for p, (start, end) in ranges.items()}
        return {p: (start, end) for p, (start, end) in rest.items() if start < end}

    @property
    def info(self) -> dict[str, object]:
        """The frontier in the form of a commit's info."""
        return {
            "ends": self.ends,
            "starts": self.starts,
            "newest_ms": self.newest_ms,
            "log": self.log,
            "driver": self.driver,
        }


def read_ingested_offsets(
    lake: Lake, topic: Topic, *, quarantine: bool = False, at: DeltaTable | None = None
) -> IngestedOffsets:
    """Reads the frontier from the table's newest commit of ingest, or from its rows if the log lacks one.

    Args:
        at: the table at a version; None: as it is now.
    """
    name = topic.full_name + (QUARANTINE if quarantine else "")
    table = at or lake.open(name)  # one version for all that is read: a driver may commit meanwhile
    info = lake.newest_info(name, "ends", within=500, at=table.version())
    if info is not None:
        newest = info["newest_ms"] if quarantine or info["newest_ms"] is not None else _newest(table, topic)
        ends, starts = _numbers(info["ends"]), _numbers(info["starts"])
        ingested = IngestedOffsets(ends, starts, newest, log=info.get("log", ""), driver=info.get("driver", ""))
    else:
        ingested = _scanned(table, None if quarantine else topic.event_time)
    # Rows go back with a restore, transaction ids do not: numbers that were used stay used.
    return replace(ingested, number=table.transaction_version(INGEST) or 0)


def offsets_at(lake: Lake, topic: Topic, version: int) -> tuple[dict[int, Range], str]:
    """Returns the offsets `[start, end)` of each partition at a version of the events, and the topic's id."""
    newest = lake.newest_info(topic.full_name, "ends", at=version)
    if newest is None:
        return {}, ""
    ends, starts = _numbers(newest["ends"]), _numbers(lake.history(topic.full_name).floor().starts)
    for commit in lake.commits(topic.full_name, -1, version, kept=True):
        if ends.keys() <= starts.keys():
            break
        starts = {**_numbers(commit.info.get("starts", {})), **starts}
    return {p: (starts.get(p, 0), end) for p, end in ends.items()}, str(newest.get("log", ""))


def _numbers(ends: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in ends.items()}


def _newest(table: DeltaTable, topic: Topic) -> int | None:
    """Returns the greatest event time among the rows; a large micro-batch knows it only after the write."""
    rows = query(f"SELECT max({DUCKDB.name(topic.event_time)}) AS at FROM live WHERE NOT {REPLAYED}", live=table.scan())
    return epoch_ms(rows["at"][0].as_py())


def _scanned(table: DeltaTable, event_time: str | None) -> IngestedOffsets:
    if table.count() == 0:
        return IngestedOffsets()
    newest = f"max({DUCKDB.name(event_time)})" if event_time else "NULL::TIMESTAMPTZ"
    sql = f'SELECT {PARTITION} AS p, max({OFFSET}) + 1 AS "end", {newest} AS at FROM live GROUP BY 1'
    rows = query(sql, live=table.scan()).to_pylist()
    ends = {row["p"]: row["end"] for row in rows if row["p"] is not None}
    return IngestedOffsets(ends, ends, epoch_ms(max((row["at"] for row in rows if row["at"]), default=None)))
