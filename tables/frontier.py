"""How far the log has been ingested, as the events table itself knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tables.declaration import Topic
from tables.decode import OFFSET, PARTITION, REPLAYED
from tables.lake import QUARANTINE, Lake
from tables.scope import epoch_ms

INGEST = "ingest"
"""The application under which ingest commits, with the frontier's number as version."""


@dataclass(frozen=True)
class Frontier:
    """Of one Delta table that a topic feeds.

    Attributes:
        ends: partition -> the first offset that is not in the table yet.
        starts: partition -> where the newest micro-batch in it began.
        newest_ms: greatest event time committed, epoch milliseconds; None when there is none.
        undone: what else counts in `number`: heartbeats, and records that the table once had beyond `ends`, before it
            was restored to an older version.
        log: the topic's id on the broker when that was committed; empty: not known.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    newest_ms: int | None = None
    undone: int = 0
    log: str = ""

    def after(self, starts: Mapping[int, int], ends: Mapping[int, int], newest_ms: int | None) -> Frontier:
        """The frontier once a micro-batch over `[starts, ends)` is in."""
        newest = [ms for ms in (self.newest_ms, newest_ms) if ms is not None]
        return replace(self, ends={**self.ends, **ends}, starts=dict(starts), newest_ms=max(newest, default=None))

    def moved(self, newest_ms: int) -> Frontier:
        """The frontier once a heartbeat is in."""
        return replace(self, newest_ms=newest_ms, undone=self.undone + 1)

    @property
    def number(self) -> int:
        """Grows with every micro-batch, whoever cuts them, and over a restore: the records of the log up to here."""
        return sum(self.ends.values()) + self.undone

    @property
    def info(self) -> dict[str, object]:
        """The frontier as a commit carries it."""
        return {"ends": self.ends, "starts": self.starts, "newest_ms": self.newest_ms}


def frontier(lake: Lake, topic: Topic, *, quarantine: bool = False) -> Frontier:
    """Read the frontier from the table's newest commit of ingest; from its rows where the log lacks one."""
    name = topic.full_name + (QUARANTINE if quarantine else "")
    info = lake.newest_info(name, "ends")
    if info is not None:
        newest = info["newest_ms"] if quarantine or info["newest_ms"] is not None else _newest(lake, topic)
        found = Frontier(_numbers(info["ends"]), _numbers(info["starts"]), newest, log=info.get("log", ""))
    else:
        found = _scanned(lake, name, None if quarantine else topic.event_time)
    # Rows go back with a restore, transaction ids do not: numbers that were used stay used.
    used = lake.open(name).transaction_version(INGEST) or 0
    return replace(found, undone=max(0, used - found.number))


def _numbers(ends: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in ends.items()}


def _newest(lake: Lake, topic: Topic) -> int | None:
    """The greatest event time by the rows: a large micro-batch learns it only once it is written."""
    import duckdb

    connection = duckdb.connect()
    connection.register("live", lake.open(topic.full_name).scan())
    row = connection.sql(f'SELECT max("{topic.event_time}") FROM live WHERE NOT {REPLAYED}').fetchone()
    return epoch_ms(row[0]) if row else None


def _scanned(lake: Lake, name: str, event_time: str | None) -> Frontier:
    import duckdb

    if lake.rows(name) == 0:
        return Frontier()
    connection = duckdb.connect()
    connection.register("live", lake.open(name).scan())
    newest = f'max("{event_time}")' if event_time else "NULL::TIMESTAMPTZ"
    rows = connection.sql(f"SELECT {PARTITION}, max({OFFSET}) + 1, {newest} FROM live GROUP BY 1").fetchall()
    ends = {partition: end for partition, end, _ in rows if partition is not None}
    times = [epoch_ms(time) for _, _, time in rows if time is not None]
    return Frontier(ends, ends, max((t for t in times if t is not None), default=None))
