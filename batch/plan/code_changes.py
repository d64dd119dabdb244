"""Plans the effect of a checkout's declarations on the live tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from batch.ledgers.run_result import RunResult
from batch.offset_selection import OffsetSelection
from batch.plan.plan import Plan, Plans
from batch.plan.planning import make_plan
from batch.rewrite.backfill import recompute
from batch.rewrite.replay import decode
from infra.delta.file_statistics import bounds_of
from infra.delta.lake import Lake
from infra.instants import Interval, epoch_ms, from_epoch_ms
from quality.row_checks import measure
from tables.declare.registry import Registry
from tables.declare.table import Table
from tables.declare.topic import Topic
from tables.refresh.acceptance import accept, accepted_code, code_today
from tables.refresh.events.decoding_fingerprint import decoding
from tables.refresh.events.ingested_offsets import APPENDED_MS
from tables.refresh.open_platform import Platform, ensure_domain

Kind = Literal["new", "changed", "removed", "rules", "new topic", "decoding", "decoding from now on"]


@dataclass(frozen=True)
class CodeChange:
    """A table or topic whose declaration differs from the live platform.

    Attributes:
        before, now: fingerprints of its definition or its decoding; empty if there is none.
    """

    table: str
    kind: Kind
    before: str = ""
    now: str = ""

    def __str__(self) -> str:
        """Describes the change in one line for people."""
        pair = f"{self.before} before, {self.now} now"
        return {
            "new": f"{self.table}: new, definition {self.now}",
            "changed": f"{self.table}: another definition, {pair}",
            "removed": f"{self.table}: no file declares it any more; its rows stay",
            "rules": f"{self.table}: other rules",
            "new topic": f"{self.table}: a new topic",
            "decoding": f"{self.table}: records are decoded otherwise, {pair}",
            "decoding from now on": f"{self.table}: records are decoded otherwise from now on, {pair}; its log is "
            "compacted, so that earlier events stay as they are",
        }[self.kind]


def code_changes(lake: Lake, registry: Registry, domains: Collection[str]) -> Iterator[CodeChange]:
    """Yields the differences between the declarations of these domains and the live topics and tables.

    The decoding of records, and the rules by which a table was checked, are known only if a stream or a rewrite of this
    software version has written there.
    """
    topics = (_change_of_topic(lake, topic) for topic in registry.topics.values() if topic.domain in domains)
    tables = (_change_of_table(lake, registry, table) for table in registry.in_order() if table.domain in domains)
    yield from (change for change in (*topics, *tables) if change)
    for name in registry.removed(lake.names()):
        if name.partition(".")[0] in domains:
            yield CodeChange(name, "removed")


def _change_of_topic(lake: Lake, topic: Topic) -> CodeChange | None:
    name, now = topic.full_name, decoding(topic)
    if not lake.exists(name):
        return CodeChange(name, "new topic")
    fact = accepted_code(lake, name)
    if fact is None or fact.is_of(now, whole=True):
        return None
    return CodeChange(name, "decoding from now on" if topic.compacted else "decoding", fact.code, now)


def _change_of_table(lake: Lake, registry: Registry, table: Table) -> CodeChange | None:
    name, now = table.full_name, code_today(table, registry)
    if not lake.exists(name):
        return CodeChange(name, "new", now=now.code)
    fact = accepted_code(lake, name)
    if fact and not fact.is_of(now.code, whole=True):
        return CodeChange(name, "changed", fact.code, now.code)
    return CodeChange(name, "rules") if fact and fact.rules not in ("", now.rules) else None


def plan_code(live: Platform, changes: Sequence[CodeChange], *, who: str, why: str, sample: timedelta | None) -> Plan:
    """Computes new and changed tables, and all below them, in a copy; plans the differences from the live tables.

    Records of topics with a changed decoding are decoded again, tables with a changed definition recomputed, and all
    rows of tables with changed rules checked against them.

    Args:
        sample: only the newest rows of this duration, for tables whose rows have a time, and the newest records by
            their append time on the broker. Such a plan cannot be published.

    Raises:
        BadDeclaration: a function does not fit its inputs or its own declaration.
        SchemaMismatch: a field of a topic is declared with another type than its events have.
        QualityFailed: a recomputed row breaks the rules of its table.
    """
    registry = live.registry
    of_kind = {kind: [change.table for change in changes if change.kind == kind] for kind in get_args(Kind)}
    names = [*of_kind["decoding"], *of_kind["new"], *of_kind["changed"], *of_kind["rules"]]
    domains = dict.fromkeys(change.table.partition(".")[0] for change in changes if change.kind != "removed")
    notes = [str(change) for change in changes]

    def prepare(copy: Platform) -> None:
        for domain in domains:
            for fault in ensure_domain(lambda: copy.spark, copy.lake, registry, domain).values():
                raise fault

    def computed(copy: Platform) -> list[RunResult]:
        results = []
        for name in of_kind["decoding"]:
            results += decode(copy, registry.topics[name], _newest_records(copy.lake, name, sample))
            fact = accepted_code(copy.lake, name)
            for partition, first in (fact.since if fact else {}).items():
                notes.append(f"{name}: events before {partition}:{first} stay as they are, their records are gone")
        for table in (table for table in registry.in_order() if table.full_name in names):
            if table.full_name in of_kind["rules"]:
                accept(copy.lake, table.full_name, code_today(table, registry))
                notes.extend(_broken_rules(copy, table))
            else:
                results.append(recompute(copy, table, _newest(copy.lake, table, sample), accepts=True))
        return results

    command = ["plan", *domains]
    plan = make_plan(live, names, computed, cause="definition", command=command, who=who, prepare=prepare)
    sampled = "" if sample is None else f"the newest {sample}"
    return Plans(live.lake.settings).save(replace(plan, why=why, notes=notes, sample=sampled))


def _broken_rules(copy: Platform, table: Table) -> Iterator[str]:
    """Yields a line for each rule that rows of the table break."""
    rows = copy.lake.frame(copy.spark, table.full_name)
    verdict = measure(rows, table.checks, datetime.now(UTC), key=table.primary_key, table=table.full_name)
    for broken in verdict.failed:
        yield f"{table.full_name}: {broken.failing:,} of {broken.rows:,} rows break {broken.rule}"


def _newest_records(lake: Lake, topic: str, sample: timedelta | None) -> OffsetSelection:
    """Selects the records of a sample by their append time on the broker; all records without a sample."""
    info = None if sample is None else lake.newest_info(topic, APPENDED_MS)
    if sample is None or info is None:
        return OffsetSelection()
    return OffsetSelection(start=from_epoch_ms(int(info[APPENDED_MS])) - sample)


def _newest(lake: Lake, table: Table, sample: timedelta | None) -> Interval | None:
    """Returns the interval of a sample of the table's rows; None: all rows."""
    if sample is None or table.event_time is None:
        return None
    last = epoch_ms(bounds_of(lake.open(table.full_name), table.event_time)[1])
    return None if last is None else Interval(last - int(sample.total_seconds() * 1_000), last + 1)
