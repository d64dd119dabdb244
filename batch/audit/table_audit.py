"""Audits closed rows in rotation, and every offset of the log, to find damage without a late record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.batch.audit.comparison import Comparison
from twofold.batch.audit.completeness import Coverage, coverage
from twofold.batch.audit.hash_buckets import Turn, compare_buckets, in_buckets, of_turn, unfound
from twofold.batch.audit.missing_offsets import explain_missing
from twofold.batch.audit.topic_audit import TopicReport, compare_with_log
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Audited, run_name
from twofold.batch.log_reader import Log
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.pinned_versions import Pinned
from twofold.batch.unexplained import name_rows
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, BrokerUnreachable, TwofoldError, UnexplainedDifference
from twofold.infra.instants import DAY_MS, Interval, epoch_ms
from twofold.infra.process.file_locks import is_held
from twofold.infra.project.feature import features
from twofold.infra.rows.rows import here
from twofold.infra.rows.sizes import COMMITTED, most_rows
from twofold.infra.spark.spark_client import failing_alone
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import require_one_definition
from twofold.tables.refresh.events.lost_offsets import gaps
from twofold.tables.refresh.open_platform import Platform, opened
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import differences_of
from twofold.tables.refresh.scope import Scope, everything

if TYPE_CHECKING:
    from twofold.infra.delta.lake import Lake
    from twofold.infra.kafka.topic_admin import PartitionOffsets
    from twofold.infra.project.settings import Settings

_LOOKS = 3
_PAUSE_S = 3.0
_FIRST_DAY = date(1970, 1, 1)


@dataclass(frozen=True, kw_only=True)
class AuditedTopic:
    """The audit of the records of one topic.

    Attributes:
        partitions: counts of the ingested and lost offsets.
        waiting: records on the broker that were not ingested yet; None if the broker did not answer.
        faults: the faults, for people.
    """

    topic: str
    partitions: Sequence[Coverage]
    waiting: int | None
    faults: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The results of an audit: of tables, of their topics, of both against other systems, and of whole logs."""

    tables: Sequence[Audited] = ()
    topics: Sequence[AuditedTopic] = ()
    comparisons: Sequence[Comparison] = ()
    logs: Sequence[TopicReport] = ()

    @property
    def passed(self) -> bool:
        """Whether rows of all tables were compared, without a fault in any row, record or copy."""
        tables_pass = not any(t.unexplained or t.skipped or not t.buckets for t in self.tables)
        others_pass = not any(comparison.fault for comparison in self.comparisons)
        topics_pass = not any(t.faults for t in self.topics) and all(log.passed for log in self.logs)
        return tables_pass and others_pass and topics_pass

    def raise_if_wrong(self) -> None:
        """Refuses to succeed if the audit found a fault or skipped a table.

        Raises:
            UnexplainedDifference: names every table and topic with a fault, and every table that was skipped.
            TwofoldError: there is no other fault than skipped tables.
        """
        wrong = [t for t in self.tables if t.unexplained]
        skipped = [t for t in self.tables if t.skipped]
        findings = [name_rows(t) for t in wrong]
        findings += [fault for topic in self.topics for fault in topic.faults]
        findings += [comparison.fault for comparison in self.comparisons if comparison.fault]
        differing = {comparison.subject for comparison in self.comparisons if comparison.fault}
        unseen = [f"Not looked at: {t.skipped}" for t in skipped]
        if findings:
            raise UnexplainedDifference(
                " ".join(["; ".join(findings) + ".", *unseen]),
                hint=f"They were left as they are: `{COMMAND} why TABLE key=value` shows what wrote such a row."
                if wrong
                else f"`{COMMAND} replay TOPIC` decodes records again; `{COMMAND} show TABLE` lists who wrote.",
                tables=[t.table for t in wrong],
                topics=[t.topic for t in self.topics if t.faults or t.topic in differing],
                skipped=[t.table for t in skipped],
            )
        if skipped:
            hint = f"{skipped[0].hint} All other tables were looked at."
            raise TwofoldError(" ".join(unseen), hint=hint, tables=[t.table for t in skipped])
        for log in self.logs:
            log.raise_if_wrong()


def audit(
    settings: Settings,
    tables: Sequence[str] = (),
    logs: Mapping[str, OffsetSelection] | None = None,
    *,
    share: float = 0.05,
    day: date | None = None,
) -> AuditReport:
    """Recomputes a share of the closed rows of tables, and compares the log with events and quarantine.

    If tables come from a captured table, the share of its rows is compared with the database itself. The share rotates
    by day: within 1/share days every row was checked. If a table and its inputs are small, all of its rows are compared
    each time. Nothing is repaired.

    Args:
        tables: full or bare names, or domains; none: every table, if no log is named either.
        logs: topic -> the records whose ingested form is compared with the log.
        share: of the event days, or of the keys if rows have none; 1: all rows.
        day: the day that selects the share; None: today, UTC.

    Raises:
        BadArgument: an unknown table or topic, or an invalid share; nothing was checked.
        TwofoldError: as `compare_with_log`.
    """
    turn = turn_of(share, day or datetime.now(UTC).date())
    registry = load()
    spans = [(registry.find_topic(name), span) for name, span in (logs or {}).items()]
    chosen = registry.chosen(tables) if tables or not spans else []
    faults = registry.left_out(tables) if tables or not spans else {}
    domains = [table.domain for table in chosen] + [topic.domain for topic, _ in spans]
    with opened(settings, "audit", domains) as platform:
        topics = audit_topics(platform, chosen)
        audited = audit_tables(platform, chosen, turn) + [_skipped(name, turn, why) for name, why in faults.items()]
        others = [comparison for compare in _others() for comparison in compare(platform, chosen, turn)]
        compared = [compare_with_log(platform, topic, Log(platform, [topic.full_name]), span) for topic, span in spans]
        return AuditReport(tables=audited, topics=topics, comparisons=others, logs=compared)


def _others() -> list[Callable[[Platform, Sequence[Table], Turn], Sequence[Comparison]]]:
    """Lists what compares tables, or their topics, with other systems."""
    return [resolve_name(name) for feature in features() for name in feature.audits]


def audit_tables(platform: Platform, tables: Sequence[Table], turn: Turn) -> list[Audited]:
    """Audits each table; one that cannot be audited is skipped, with the reason."""
    audited = []
    for table in tables:
        failures: list[TwofoldError] = []
        with failing_alone(table.full_name, failures):
            audited.append(audit_table(platform, table, turn))
        audited += [_skipped(table.full_name, turn, failure) for failure in failures]
    return audited


def _skipped(table: str, turn: Turn, why: TwofoldError) -> Audited:
    none = Audited(table=table, run=run_name("audit"), turn=turn.number, of=turn.of)
    return replace(none, skipped=why.message, hint=why.hint or "")


def turn_of(share: float, day: date) -> Turn:
    """Returns the share of the tables that is audited on a day.

    Raises:
        BadArgument: `share` is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise BadArgument(
            f"share={share}: expected a share above 0, at most 1.", hint="0.05 looks at a twentieth of the rows a day."
        )
    of = math.ceil(round(1 / share, 6))
    return Turn((day - _FIRST_DAY).days % of, of)


def audit_table(platform: Platform, table: Table, turn: Turn) -> Audited:
    """Compares the share of closed rows with their recomputation, and records the result in the ledger of runs.

    The recomputation equals that of a reconcile, but also covers rows that no late record touched.

    Raises:
        DefinitionChanged: its rows were computed by another definition.
    """
    began = time.monotonic()
    require_one_definition(platform.lake, table, platform.registry)
    pinned = Pinned(platform, table)
    version = platform.lake.version(table.full_name)
    turn = Turn() if _is_small(pinned) else turn
    result = Audited(table=table.full_name, run=run_name("audit"), turn=turn.number, of=turn.of, version=version)
    if not pinned.is_open:
        result = _compare(pinned, result, turn)
    result = replace(result, seconds=time.monotonic() - began)
    pinned.ledgers.record_audit(result, fingerprint(table))
    return result


def _is_small(pinned: Pinned) -> bool:
    """Whether all rows can be compared quickly: a share of few rows would often be empty."""
    table, lake = pinned.table, pinned.platform.lake
    read = pinned.refresher().input_rows(everything(table))
    return read is not None and read + lake.rows(table.full_name) <= most_rows(lake.settings, COMMITTED)


def _compare(pinned: Pinned, result: Audited, turn: Turn) -> Audited:
    """Adds the comparison to the result."""
    table = pinned.table
    pinned.wait_for_stream()
    should, live = (of_turn(table, side, turn) for side in pinned.refresher().sides(_scopes(pinned, turn)))
    differing = compare_buckets(table, should, live)
    result = replace(result, rows=differing.rows, buckets=differing.buckets, differing=len(differing.differing))
    if not differing.differing:
        return result
    sides = [in_buckets(table, side, differing.differing) for side in (should, live)]
    rows = here(PublishedTable.of_table(pinned.platform.spark, pinned.platform.lake, table).difference(*sides))
    unexplained, hidden = pinned.outside(rows, pinned.in_flight(pinned.before())), unfound(table, sides, rows)
    return replace(
        result,
        excused=len(rows) - len(unexplained),
        unexplained=len(unexplained) + hidden,
        unfound=hidden,
        differences=differences_of(table, unexplained),
    )


def _scopes(pinned: Pinned, turn: Turn) -> list[Scope]:
    """Returns the scopes of the share: all rows, or those of its days, so that other files are not opened."""
    table, span = pinned.table, _days(pinned)
    if turn.of == 1 or span is None or not table.depends_within or table.ends_at:
        return everything(table)
    anything = tuple(... for _ in table.recompute_by)
    days = [day for day in range(span[0], span[1] + 1) if turn.takes(day)]
    return [Scope(anything, Interval(day * DAY_MS, (day + 1) * DAY_MS)) for day in days or [span[0] - 1]]


def _days(pinned: Pinned) -> tuple[int, int] | None:
    """Returns the first and the last day that a row can have, by the statistics of the table and its inputs."""
    lake, table = pinned.platform.lake, pinned.table
    depends_within = table.depends_within_ms or 0
    bounds = [_span(lake, table.full_name, table.event_time)]
    bounds += [_span(lake, s.full_name, s.event_time) for s in pinned.sources]
    bounded = [bound for bound in bounds if bound]
    if not bounded or None in bounds:
        return None
    first, last = min(first for first, _ in bounded), max(last for _, last in bounded)
    return (first - depends_within) // DAY_MS, (last + depends_within) // DAY_MS


def audit_topics(platform: Platform, tables: Sequence[Table]) -> list[AuditedTopic]:
    """Audits every record of the topics from which these tables are computed, and records that in the ledger of runs.

    The log is read only if offsets are missing, to check whether it has records there; transaction markers and aborted
    records are noted in `ledger.transactions`.
    """
    topics = {name: t for table in tables for name, t in platform.registry.above(table).topics.items()}
    on_broker = _on_broker(platform.lake.settings, list(topics))
    audited = [
        _audit_topic(platform, topic, None if on_broker is None else on_broker.get(topic.full_name, {}))
        for topic in topics.values()
    ]
    ledgers = Ledgers(platform.lake)
    for topic in audited:
        counts = {"records": sum(p.records for p in topic.partitions), "faults": len(topic.faults)}
        ledgers.record_topic_audit(topic.topic, "audit_offsets", **counts)
    return audited


def _audit_topic(platform: Platform, topic: Topic, bounds: Mapping[int, PartitionOffsets] | None) -> AuditedTopic:
    name, lake = topic.full_name, platform.lake
    coverages = coverage(lake, topic) if lake.exists(name) else []
    for _ in range(_LOOKS - 1):
        # The quarantine of a large micro-batch is written after its events.
        if all(c.is_complete for c in coverages) or not is_held(lake.settings.driver_lock(topic.domain)):
            break
        time.sleep(_PAUSE_S)
        coverages = coverage(lake, topic)
    if bounds is not None and any(c.missing for c in coverages) and explain_missing(platform, topic):
        coverages = coverage(lake, topic)
    faults = [c.fault for c in coverages if c.fault]
    faults += [f"{gap}; `{COMMAND} acknowledge` notes who knows of it" for gap in gaps(lake, name) if gap.is_open]
    if bounds is None:
        return AuditedTopic(topic=name, partitions=coverages, waiting=None, faults=faults)
    reached = {c.partition: c for c in coverages}
    waiting = 0
    for partition, bound in bounds.items():
        ingested = reached.get(partition)
        waiting += max(0, bound.latest - (ingested.end if ingested else bound.earliest))
        if ingested and ingested.start > bound.earliest:
            faults.append(f"{name}, partition {partition}: [{bound.earliest}, {ingested.start}) was never ingested")
        if ingested and ingested.end > bound.latest:
            faults.append(
                f"{name}, partition {partition}: ingested up to offset {ingested.end}, "
                f"and the log ends at {bound.latest}"
            )
    return AuditedTopic(topic=name, partitions=coverages, waiting=waiting, faults=faults)


def _on_broker(settings: Settings, topics: Sequence[str]) -> dict[str, dict[int, PartitionOffsets]] | None:
    from twofold.infra.kafka.topic_admin import offsets

    try:
        return offsets(settings, topics)
    except BrokerUnreachable:
        return None


def _span(lake: Lake, name: str, column: str | None) -> tuple[int, int] | None:
    """Returns the least and the greatest time of a table's rows, epoch milliseconds; None if statistics lack them."""
    if column is None:
        return None
    files = pa.table(lake.open(name).get_add_actions(flatten=True)).to_pylist()
    times = [(epoch_ms(file.get(f"min.{column}")), epoch_ms(file.get(f"max.{column}"))) for file in files]
    first = [least for least, _ in times if least is not None]
    last = [greatest for _, greatest in times if greatest is not None]
    if not times or len(first) < len(times) or len(last) < len(times):
        return None
    return min(first), max(last)
