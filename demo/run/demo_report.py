"""The demo's report: stream results, corrections, and the comparison with the source."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Audited, run_name
from twofold.demo.run.followers import Followed, not_forgotten
from twofold.demo.traffic import ack_journal
from twofold.demo.traffic.expected import expected_tables
from twofold.demo.traffic.sources import source_of
from twofold.demo.traffic.table_diff import compare
from twofold.features.analysts.sql_query import Analyst
from twofold.features.outputs.copy_comparison import compare_copy
from twofold.features.outputs.open_target import open_target
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.project.settings import Settings
from twofold.status.fold import Facts
from twofold.streaming.query.progress import last_of
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold.infra.kafka.topic_admin import PartitionOffsets
    from twofold.tables.declare.output import Output
    from twofold.tables.declare.registry import Registry
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic

COPY_S = 120.0
"""For so long the demo waits until a copy shows the newest version of its table."""


@dataclass(frozen=True, kw_only=True)
class TopicAccount:
    """The comparison of a topic's log with events and quarantine, by offset.

    Attributes:
        records: in the log.
        acknowledged: in the journal of the traffic.
        events, quarantined: rows of the two tables.
        missing: offsets of the log, or of the journal, that are in neither table.
        repeated: rows beyond the first of their offset, in both tables together.
        misjudged: sound records in quarantine and corrupt ones among the events, by the journal.
    """

    name: str
    records: int
    acknowledged: int
    events: int
    quarantined: int
    missing: int
    repeated: int
    misjudged: int

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.repeated or self.misjudged)


@dataclass(frozen=True, kw_only=True)
class TableAccount:
    """The comparison of a table with the source.

    Attributes:
        rows: of the live table.
        by_stream: the rows that the stream wrote; batch work added the others.
        late: input records later than the watermark; None if no row closes.
        corrected: rows that batch work inserted, updated or deleted.
        unexplained: unexplained differences from a recomputation; None if it was not recomputed.
        compared: closed rows that DuckDB computed from the source.
        missing, extra, changed: live rows that differ from those.
    """

    name: str
    rows: int
    by_stream: int
    late: int | None
    corrected: int
    unexplained: int | None
    compared: int
    missing: int
    extra: int
    changed: int

    @property
    def is_right(self) -> bool:
        return self.unexplained == 0 and not (self.missing or self.extra or self.changed)


@dataclass(frozen=True, kw_only=True)
class CopyAccount:
    """The comparison of the copy of an output with its table, as of the newest version.

    Attributes:
        name: of the table.
        kind: what holds the copy.
        rows: that the copy should have.
        differing: None: the copy did not get there.
    """

    name: str
    kind: str
    rows: int
    differing: int | None

    @property
    def is_right(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a domain.

    Attributes:
        start, end: the days that were fed.
    """

    start: date
    end: date
    topics: Sequence[TopicAccount]
    tables: Sequence[TableAccount]
    copies: Sequence[CopyAccount] = ()
    followers: Sequence[Followed] = ()

    @property
    def is_right(self) -> bool:
        parts: list[TopicAccount | TableAccount | CopyAccount | Followed] = [
            *self.topics,
            *self.tables,
            *self.copies,
            *self.followers,
        ]
        return all(part.is_right for part in parts)


def draw(
    settings: Settings,
    registry: Registry,
    domain: str,
    unexplained: Mapping[str, int],
    count: Callable[[int, int], None] = lambda done, total: None,
) -> Account:
    """Compares all topics and tables of a domain with its journal and its source.

    Args:
        unexplained: table -> differences that a full recomputation could not explain.
        count: called with the number of compared tables, and of all.
    """
    lake = Lake(settings)
    analyst = Analyst(lake)
    start, end = fed_days(analyst, domain)
    topics = registry.domain_topics(domain)
    bounds = offsets(settings, [topic.full_name for topic in topics])
    facts = Facts(lake)
    late, corrected = facts.late(registry), facts.corrections()
    added = _rows_added(analyst)
    tables: list[TableAccount] = []
    compared = [table for table in registry.in_order(domain) if table.full_name in expected_tables.KEYS]
    known = not_forgotten(settings, analyst, domain)
    for table in compared:
        count(len(tables), len(compared))
        rows = lake.rows(table.full_name)
        tables.append(
            TableAccount(
                name=table.full_name,
                rows=rows,
                by_stream=rows - added.get(table.full_name, 0),
                late=late.get(table.full_name),
                corrected=corrected.get(table.full_name, 0),
                unexplained=unexplained.get(table.full_name),
                **_verdict(analyst, table, start, end, closed_before(settings, registry, table), known),
            )
        )
    return Account(
        start=start,
        end=end,
        topics=[account_of_topic(analyst, settings, topic, bounds[topic.full_name]) for topic in topics],
        tables=tables,
        copies=[
            account_of_copy(lake, table, output)
            for table in registry.in_order(domain)
            for output in table.outputs
            if output.is_read
        ],
    )


def record_proofs(lake: Lake, registry: Registry, tables: Sequence[TableAccount]) -> None:
    """Records the comparisons of tables in the ledger, each as an audit of all rows."""
    for account in tables:
        wrong = (account.unexplained or 0) + account.missing + account.extra + account.changed
        whole = Audited(table=account.name, run=run_name("audit"), turn=0, of=1, version=lake.version(account.name))
        audited = replace(whole, rows=account.compared, unexplained=wrong)
        Ledgers(lake).record_audit(audited, fingerprint(registry.find_table(account.name)))


def account_of_copy(lake: Lake, table: Table, output: Output, patience_s: float = COPY_S) -> CopyAccount:
    """Compares a copy with its table once it shows the newest version."""
    target, deadline = open_target(lake, table, output), time.monotonic() + patience_s
    while True:
        compared = compare_copy(lake, table, target)
        if compared is not None and compared.version == lake.version(table.full_name):
            return CopyAccount(name=table.full_name, kind=output.kind, rows=compared.rows, differing=compared.differing)
        if time.monotonic() > deadline:
            return CopyAccount(
                name=table.full_name, kind=output.kind, rows=compared.rows if compared else 0, differing=None
            )
        time.sleep(1)


def fed_days(analyst: Analyst, domain: str) -> tuple[date, date]:
    """Returns the days of the source whose records are there: the first, and the one after the last."""
    source = source_of(domain)
    topic, column = source.DATED_BY
    day = f"({column} AT TIME ZONE {DUCKDB.literal(str(source.ZONE))})::DATE"
    first, last = analyst.rows(f"SELECT min({day}), max({day}) FROM {topic}")[0]
    assert isinstance(first, date)
    assert isinstance(last, date)
    return first, last + timedelta(days=1)


def closed_before(settings: Settings, registry: Registry, table: Table) -> datetime | None:
    """Returns the watermark of a table's stream, or the least of its upstream streams; None if rows never close."""
    from twofold.tables.declare.table import Table

    if table.closes_at:
        return last_of(settings, table.domain, table.name).watermark
    above = [declared for declared in registry.upstream(table) if isinstance(declared, Table)]
    return min((mark for mark in (closed_before(settings, registry, t) for t in above) if mark), default=None)


def _verdict(
    analyst: Analyst, table: Table, start: date, end: date, before: datetime | None, known: str
) -> dict[str, int]:
    name = table.full_name
    final = expected_tables.is_final(name, before) if before else "true"
    condition = f"({final}) AND {known}" if name in expected_tables.OF_PERSONS else final
    live = analyst.run(f"FROM {name} WHERE {condition}").to_arrow_table()
    if table.lineage_columns:
        live = live.drop_columns(list(table.lineage_columns))
    expected = expected_tables.expected(name, start, end, condition)
    compared = compare(expected, live, expected_tables.KEYS[name], table.tolerances)
    return {
        "compared": compared.rows,
        "missing": compared.missing,
        "extra": compared.extra,
        "changed": compared.changed,
    }


def _rows_added(analyst: Analyst) -> dict[str, int]:
    """Maps each table to the number of rows that batch work inserted minus those that it deleted."""
    net = "count(*) FILTER (change = 'insert') - count(*) FILTER (change = 'delete')"
    return {str(t): int(str(n)) for t, n in analyst.rows(f'SELECT "table", {net} FROM ledger.corrections GROUP BY ALL')}


def account_of_topic(
    analyst: Analyst, settings: Settings, topic: Topic, bounds: Mapping[int, PartitionOffsets]
) -> TopicAccount:
    """Compares the log, the journal and the two tables of a topic, offset by offset, up to the ends in `bounds`.

    A captured topic gets records as long as its database runs; those after `bounds` do not count.
    """
    import pyarrow as pa

    acknowledged = ack_journal.load(*ack_journal.files(settings, topic.domain))
    log = pa.table({"partition": list(bounds), "latest": [b.latest for b in bounds.values()]})
    analyst.connection.register("acknowledged", acknowledged)
    analyst.connection.register("log", log)
    analyst.connection.execute(_TAKEN.format(topic=topic.full_name, quarantine=topic.full_name + QUARANTINE))
    counts = analyst.connection.execute(_COUNTS, {"topic": topic.full_name}).fetchone()
    assert counts is not None
    names = ("records", "acknowledged", "events", "quarantined", "missing", "repeated", "misjudged")
    return TopicAccount(name=topic.full_name, **dict(zip(names, map(int, counts), strict=True)))


_TAKEN = """
CREATE OR REPLACE TEMP TABLE taken AS
SELECT taken.* FROM (
    SELECT _partition AS "partition", _offset AS "offset", 'event' AS place FROM {topic}
    UNION ALL
    SELECT _partition, _offset, 'quarantine' FROM {quarantine}
) AS taken JOIN log ON taken."partition" = log."partition" AND taken."offset" < log.latest
"""

_COUNTS = """
WITH sent AS (SELECT "partition", "offset", kind FROM acknowledged WHERE topic = $topic),
once AS (SELECT "partition", "offset", min(place) AS place FROM taken GROUP BY ALL),
known AS (
    SELECT "partition", "offset" FROM sent
    UNION
    SELECT "partition", unnest(range(latest)) AS "offset" FROM log
)
SELECT
    (SELECT coalesce(sum(latest), 0) FROM log),
    (SELECT count(*) FROM sent),
    (SELECT count(*) FROM taken WHERE place = 'event'),
    (SELECT count(*) FROM taken WHERE place = 'quarantine'),
    (SELECT count(*) FROM known ANTI JOIN once USING ("partition", "offset")),
    (SELECT count(*) FROM taken) - (SELECT count(*) FROM once),
    (SELECT count(*) FROM sent JOIN once USING ("partition", "offset")
     WHERE starts_with(kind, 'corrupt') <> (place = 'quarantine'))
"""
