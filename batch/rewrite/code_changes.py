"""Plans what the declarations of a checkout would change in the live tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from batch.ledgers.run_result import RunResult
from batch.rewrite.backfill import recompute
from batch.rewrite.plan import Plan, Plans
from batch.rewrite.planning import make_plan
from infra.delta.file_statistics import bounds_of
from infra.delta.lake import Lake
from infra.instants import Interval, epoch_ms
from tables.declare.code_fingerprint import definition, is_accepted, recorded
from tables.declare.registry import Registry
from tables.declare.table import Table
from tables.refresh.open_platform import Platform, ensure_domain

Kind = Literal["new", "changed", "removed"]


@dataclass(frozen=True)
class CodeChange:
    """A table that the declarations have otherwise than the live platform.

    Attributes:
        before, now: fingerprints of its definition; empty where there is none.
    """

    table: str
    kind: Kind
    before: str = ""
    now: str = ""

    def __str__(self) -> str:
        """One line for people."""
        return {
            "new": f"{self.table}: new, definition {self.now}",
            "changed": f"{self.table}: another definition, {self.before} before, {self.now} now",
            "removed": f"{self.table}: no file declares it any more; its rows stay",
        }[self.kind]


def code_changes(lake: Lake, registry: Registry, domains: Collection[str]) -> Iterator[CodeChange]:
    """The tables of these domains whose declarations are not those of their rows, inputs first, then removed ones."""
    for table in registry.in_order():
        if table.domain not in domains:
            continue
        now = definition(table, registry)
        if not lake.exists(table.full_name):
            yield CodeChange(table.full_name, "new", now=now)
        elif not is_accepted(lake, table, registry):
            yield CodeChange(table.full_name, "changed", recorded(lake, table) or "", now)
    for name in registry.removed(lake.names()):
        if name.partition(".")[0] in domains:
            yield CodeChange(name, "removed")


def plan_code(live: Platform, changes: Sequence[CodeChange], *, who: str, why: str, sample: timedelta | None) -> Plan:
    """Compute the tables that are new or changed in a copy, and all below them; what differs from the live ones.

    Args:
        sample: only the newest rows of so long, of tables whose rows have a time. Such a plan is only looked at.

    Raises:
        BadDeclaration: a function does not fit its inputs or its own declaration.
        QualityFailed: a row breaks the rules of its table.
    """
    registry = live.registry
    names = [change.table for change in changes if change.kind != "removed"]

    def computed(copy: Platform) -> list[RunResult]:
        for domain in dict.fromkeys(name.partition(".")[0] for name in names):
            for fault in ensure_domain(lambda: copy.spark, copy.lake, registry, domain).values():
                raise fault
        tables = [registry.tables[name] for name in names]
        return [recompute(copy, table, _newest(copy.lake, table, sample), accepts=True) for table in tables]

    command = ["plan", *dict.fromkeys(name.partition(".")[0] for name in names)]
    plan = make_plan(live, names, computed, cause="definition", command=command, who=who, why=why)
    notes = [str(change) for change in changes]
    sampled = "" if sample is None else f"the newest {sample}"
    return Plans(live.lake.settings).save(replace(plan, notes=notes, sample=sampled))


def _newest(lake: Lake, table: Table, sample: timedelta | None) -> Interval | None:
    """The time of a sample of the table's rows; None: all."""
    if sample is None or table.event_time is None:
        return None
    last = epoch_ms(bounds_of(lake.open(table.full_name), table.event_time)[1])
    return None if last is None else Interval(last - int(sample.total_seconds() * 1_000), last + 1)
