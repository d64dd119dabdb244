"""Certifies the offsets from which a version of a table was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.batch.late_rows import Late, late_rows
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.duckdb_session import duckdb_utc, query
from twofold.infra.offset_ranges import Range, Spans, size, subtract, within
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.ingested_offsets import offsets_at, read_ingested_offsets
from twofold.tables.refresh.events.lost_offsets import gaps, places
from twofold.tables.refresh.events.transaction_offsets import in_transactions
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NO_OFFSET = 2**63 - 1  # lies behind every one


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Counts of the ingested offsets `[start, end)` of one partition.

    Attributes:
        start: the first offset that ingest read.
        end: the first offset that was not ingested yet.
        events, quarantined: rows of the two tables in the range.
        missing: offsets of the range that are in neither table.
        repeated: rows beyond the first of their offset, in both tables together.
        astray: rows of either table outside of the range.
        lost: offsets in neither table that the ledger of gaps explains; they do not count as missing.
        in_transactions: offsets in neither table that the ledger of transactions explains: markers, aborted records,
            and records that the broker has removed from a compacted topic.
    """

    topic: str
    partition: int
    start: int
    end: int
    events: int
    quarantined: int
    missing: int
    repeated: int
    astray: int
    lost: int = 0
    in_transactions: int = 0

    @property
    def records(self) -> int:
        return self.end - self.start

    @property
    def is_complete(self) -> bool:
        """Whether each offset of the range is in one of the two tables, once, or explained by a ledger."""
        return not (self.missing or self.repeated or self.astray)

    @property
    def fault(self) -> str:
        """The fault, for people; empty if there is none."""
        counts = {"missing": self.missing, "repeated": self.repeated, "out of range": self.astray}
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{self.topic}, partition {self.partition}, [{self.start}, {self.end}): {said} offsets" if said else ""


@dataclass(frozen=True, kw_only=True)
class TopicIn:
    """The part of a topic that a table was computed from.

    Attributes:
        version: of the events table that the table has read, or a later one.
        duplicates: events that repeat another one; tables that remove repeats count them once.
    """

    topic: str
    version: int
    duplicates: int
    partitions: Sequence[Coverage]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def events(self) -> int:
        return sum(partition.events for partition in self.partitions)

    @property
    def quarantined(self) -> int:
        return sum(partition.quarantined for partition in self.partitions)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The offsets from which a version of a table was computed, through all tables between it and the log.

    Attributes:
        inputs: topic or table that it reads -> the version that it has read.
        topics: every topic upstream, each as far as it was read on every path to the table.
        untold: inputs whose read version no commit records.
        late: records that streams on the path may have dropped as late.
        fingerprint: of the definition by which the newest rows were computed.
    """

    table: str
    version: int
    rows: int
    fingerprint: str | None
    inputs: Mapping[str, int]
    topics: Sequence[TopicIn]
    untold: Sequence[str] = ()
    late: Sequence[Late] = ()

    @property
    def faults(self) -> list[str]:
        """The reasons why it is not complete; empty if it is."""
        reasons = [p.fault for topic in self.topics for p in topic.partitions if p.fault]
        reasons += [late.fault for late in self.late if late.fault]
        return [*reasons, *(f"{name}: no commit says how far it was read" for name in self.untold)]

    @property
    def is_complete(self) -> bool:
        """Whether every record up to the stated offsets is in the table or in quarantine, or counted as lost."""
        return not self.faults


def certify(lake: Lake, registry: Registry, table: Table, version: int | None = None) -> Certificate:
    """Builds the certificate of a version of a table, or of its newest.

    It relies on the versions that streams record in each commit. Reads without a written row, partial reads, and reads
    of batch work are not counted. Records that a stream may have dropped as late count as missing until a reconcile has
    checked them. The certificate may state less than is true, never more.

    Raises:
        BadArgument: the table was never written.
    """
    at = lake.version(table.full_name) if version is None else version
    inputs, untold = _taken_in(lake, registry, table, at)
    marked = lake.newest_info(table.full_name, "fingerprint", at=at)
    return Certificate(
        table=table.full_name,
        version=at,
        rows=int(lake.open(table.full_name, at).count()),
        fingerprint=str(marked["fingerprint"]) if marked else None,
        inputs={name: taken for name, taken in inputs.items() if name in _names(registry, table)},
        topics=[
            TopicIn(
                topic=name,
                version=taken,
                duplicates=_duplicates(lake, registry.topics[name], taken),
                partitions=coverage(lake, registry.topics[name], taken),
            )
            for name, taken in inputs.items()
            if name in registry.topics
        ],
        untold=untold,
        late=late_rows(lake, registry, table, {**inputs, table.full_name: at}),
    )


def coverage(lake: Lake, topic: Topic, version: int | None = None) -> list[Coverage]:
    """Counts the offsets that the events table had ingested at a version, or has now, by partition.

    A replay moves records from one table to the other, so both are read as they are now, up to those offsets.
    """
    connection, log = _stored(lake, topic, version)
    rows = connection.execute(_COUNTS).fetchall()
    names = ("partition", "start", "end", "events", "quarantined", "absent", "repeated", "astray")
    blocks = [dict(zip(names, map(int, row), strict=True)) for row in rows]
    absent = _absent(lake, topic, version) if sum(counts.pop("absent") for counts in blocks) else {}
    lost, hidden, unexplained = _explained(lake, topic, log, absent)
    return [
        Coverage(
            topic=topic.full_name,
            **counts,
            missing=_in(counts["partition"], unexplained),
            lost=_in(counts["partition"], lost),
            in_transactions=_in(counts["partition"], hidden),
        )
        for counts in blocks
    ]


def missing(lake: Lake, topic: Topic) -> dict[int, list[Range]]:
    """Returns the ingested offsets, by partition, that are in neither table and that no ledger explains."""
    return _explained(lake, topic, read_ingested_offsets(lake, topic).log, _absent(lake, topic, None))[2]


_TAKEN = f"""
WITH stored AS (
    SELECT {PARTITION} AS p, {OFFSET} AS o, true AS is_event FROM events WHERE {OFFSET} IS NOT NULL
    UNION ALL
    SELECT {PARTITION}, {OFFSET}, false FROM quarantine
),
taken AS (FROM stored JOIN bounds USING (p) WHERE CASE WHEN is_event THEN o < until ELSE o < e END)"""
_COUNTS = f"""{_TAKEN}
SELECT b.p, b.s, b.e,
    count(*) FILTER (t.o >= b.s AND t.o < b.e AND t.is_event) AS events,
    count(*) FILTER (t.o >= b.s AND t.o < b.e AND NOT t.is_event) AS quarantined,
    b.e - b.s - count(DISTINCT t.o) FILTER (t.o >= b.s AND t.o < b.e) AS absent,
    count(t.o) - count(DISTINCT t.o) AS repeated,
    count(DISTINCT t.o) FILTER (t.o < b.s OR t.o >= b.e) AS astray
FROM bounds b LEFT JOIN taken t USING (p)
GROUP BY b.p, b.s, b.e ORDER BY b.p
"""
_ABSENT = f"""{_TAKEN},
edges AS (
    SELECT p, o FROM taken WHERE o >= s AND o < e
    UNION ALL SELECT p, s - 1 FROM bounds
    UNION ALL SELECT p, e FROM bounds
),
steps AS (SELECT p, o, lead(o) OVER (PARTITION BY p ORDER BY o) AS following FROM edges)
SELECT p, o + 1, following FROM steps WHERE following > o + 1 ORDER BY p, o
"""


def _stored(lake: Lake, topic: Topic, version: int | None) -> tuple[DuckDBPyConnection, str]:
    """Registers events, quarantine and the ingested bounds with DuckDB; also returns the topic's id on the broker."""
    newest = lake.version(topic.full_name)
    connection = duckdb_utc()
    connection.register("events", lake.open(topic.full_name, newest).scan(columns=[PARTITION, OFFSET]))
    connection.register("quarantine", lake.open(topic.full_name + QUARANTINE).scan(columns=[PARTITION, OFFSET]))
    taken, log = offsets_at(lake, topic, newest if version is None else version)
    # The newest version may have grown; rows of the events never exceed their own frontier.
    bounds = [(p, start, end, _NO_OFFSET if version is None else end) for p, (start, end) in taken.items()]
    columns = [pa.array([bound[n] for bound in bounds], pa.int64()) for n in range(4)]
    connection.register("bounds", pa.table(columns, names=["p", "s", "e", "until"]))
    return connection, log


def _absent(lake: Lake, topic: Topic, version: int | None) -> dict[int, list[Range]]:
    """Returns the offsets ingested by a version that neither table has."""
    connection, _ = _stored(lake, topic, version)
    absent: dict[int, list[Range]] = {}
    for partition, start, end in connection.execute(_ABSENT).fetchall():
        absent.setdefault(int(partition), []).append((int(start), int(end)))
    return absent


def _explained(
    lake: Lake, topic: Topic, log: str, absent: Spans
) -> tuple[dict[int, list[Range]], dict[int, list[Range]], dict[int, list[Range]]]:
    """Splits the offsets that neither table has into lost ones, those of transactions, and missing ones."""
    if not absent:
        return {}, {}, {}
    lost = within(absent, places(gap for gap in gaps(lake, topic.full_name) if gap.log == log))
    rest = subtract(absent, lost)
    explained = within(rest, in_transactions(lake, topic.full_name, log))
    return lost, explained, subtract(rest, explained)


def _in(partition: int, some: Spans) -> int:
    return size({partition: some.get(partition, ())})


def _duplicates(lake: Lake, topic: Topic, version: int) -> int:
    rows = lake.open(topic.full_name, version).scan(columns=list(topic.same_record), predicate=f"{OFFSET} IS NOT NULL")
    record = DUCKDB.names(topic.same_record)
    counted = query(f"SELECT count(*) - count(DISTINCT ({record})) AS n FROM events", events=rows)
    return int(counted["n"][0].as_py())


def _names(registry: Registry, table: Table) -> set[str]:
    return {source.full_name for source in registry.upstream(table)}


def _taken_in(lake: Lake, registry: Registry, table: Table, version: int) -> tuple[dict[str, int], list[str]]:
    """Maps every upstream topic and table to the version read on all paths; also lists those without any."""
    info: Mapping[str, Any] = lake.newest_info(table.full_name, "versions", at=version) or {}
    versions: dict[str, int] = {}
    untold: list[str] = []
    for source in registry.upstream(table):
        next_version = int(info.get("versions", {}).get(source.full_name, 0))
        # A micro-batch may have read only a part of the files of the last version that it names.
        next_version -= source.full_name in info.get("parts", ())
        if next_version == 0:
            untold.append(source.full_name)
            continue
        versions[source.full_name] = min(next_version - 1, versions.get(source.full_name, next_version))
        if isinstance(source, Table):
            above, unknown = _taken_in(lake, registry, source, next_version - 1)
            untold += unknown
            for name, taken in above.items():
                versions[name] = min(taken, versions.get(name, taken))
    return versions, list(dict.fromkeys(untold))
