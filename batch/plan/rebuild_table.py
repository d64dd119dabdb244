"""Rebuilds a table from the log in a shadow lake, up to the offsets of the live lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from twofold.batch.log_reader import Log
from twofold.batch.plan.plan import Plan, Plans
from twofold.batch.plan.planning import make_plan
from twofold.batch.rewrite.promotion import Promotion
from twofold.infra.errors import ProcessFailed
from twofold.infra.offset_ranges import Ranges, RangesOf
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import require_proved
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform, opened
from twofold.tables.refresh.shadow_lake import drop, is_stale, rebuild_lock, shadow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Reingest = Callable[[Platform, RangesOf, Callable[[Topic, Ranges], "DataFrame"]], object]
"""Fills a shadow through the streaming code with these offsets of each topic, which a function reads."""


def plan_rebuild(settings: Settings, name: str, reingest: Reingest, who: str, why: str, *, fresh: bool) -> Plan:
    """Rebuilds a table in its shadow up to the live platform's ingested offsets, and plans the changes.

    Raises:
        ProcessFailed: another process rebuilds it.
    """
    table = load().find_table(name)
    with exclusive(rebuild_lock(settings, table.full_name)) as ours:
        if not ours:
            raise ProcessFailed(f"{table.full_name} is being rebuilt already.", hint="Wait until that run has ended.")
        if fresh:
            drop(settings, table)
        with opened(settings, "rebuild", [table.domain], runs_streams=True) as live:
            require_proved(live.lake, table, live.registry)
            log = Log(live, list(live.registry.above(table).topics))
            rebuilt = rebuild_in_shadow(live, table, log, reingest)
            plan = make_plan(
                live,
                [table.full_name],
                lambda copy: [replace(rebuilt, live=copy).promote()],
                cause="rebuild",
                command=["rebuild", table.full_name],
                who=who,
            )
            return Plans(settings).save(replace(plan, why=why)) if why else plan


def rebuild_in_shadow(live: Platform, table: Table, log: Log, reingest: Reingest) -> Promotion:
    """Brings the table's shadow up to the ingested offsets of the live platform."""
    in_shadow = shadow(live, table)
    if is_stale(in_shadow):
        drop(live.lake.settings, table)
        in_shadow = shadow(live, table)
    reingest(in_shadow, _ranges(live, in_shadow, log), log.read)
    promotion = Promotion(live, in_shadow, table)
    promotion.settle()
    return promotion


def _ranges(live: Platform, in_shadow: Platform, log: Log) -> dict[str, Ranges]:
    """Returns the offset ranges of each topic up to the ingested offsets of the live platform."""
    ranges: dict[str, Ranges] = {}
    for name, topic in in_shadow.registry.topics.items():
        ends = read_ingested_offsets(live.lake, topic).ends
        ranges[name] = {p: (start, ends[p]) for p, start in log.starts(name).items() if p in ends}
    return ranges
