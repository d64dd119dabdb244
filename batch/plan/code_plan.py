"""Plans the effect of a checkout's declarations on the live tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.plan.code_changes import CodeChange, Kind
from twofold.batch.plan.plan import Plan, Plans
from twofold.batch.plan.planning import make_plan
from twofold.batch.rewrite.backfill import recompute
from twofold.batch.rewrite.replay import decode
from twofold.infra.delta.file_statistics import bounds_of
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import Interval, epoch_ms, from_epoch_ms
from twofold.quality.row_checks import measure
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import accept, accepted_code, code_today
from twofold.tables.refresh.events.ingested_offsets import APPENDED_MS
from twofold.tables.refresh.open_platform import Platform, ensure_domain


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
