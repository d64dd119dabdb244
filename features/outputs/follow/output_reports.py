"""State of the outputs of tables: what their copies show, how far they are behind, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from twofold.features.outputs.follow.output_state import OutputState, StateFile
from twofold.features.outputs.follow.runner import NAME
from twofold.features.outputs.refused_rows import refused_counts
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import DamagedLog
from twofold.infra.instants import epoch_ms
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.status.parts.snapshot import OutputReport
from twofold.tables.declare.registry import Registry

PATIENCE = timedelta(minutes=10)
"""A receiver may refuse a change, now and then, and take it by then."""


def output_reports(lake: Lake, registry: Registry, now: datetime) -> list[OutputReport]:
    """Reports every output of these declarations; what holds the copies is not asked."""
    declared = list(registry.outputs())
    if not declared:
        return []
    refused = refused_counts(lake)
    runs = any(p.name == NAME and p.pid for p in supervisor.state(lake.settings))
    reports = []
    for table, output in declared:
        name, full_name = output.name_for(table.name), table.full_name
        known, queue = _states(lake.settings, full_name, name)
        behind, behind_s = _lag(lake, full_name, known.version, now)
        reports.append(
            OutputReport(
                table=full_name,
                output=name,
                kind=output.kind,
                state=_state(known, queue.waiting, behind, runs=runs),
                version=known.version,
                behind=behind,
                behind_s=behind_s,
                waiting=queue.waiting,
                refused=refused[full_name, name],
                error=_error(known, queue),
                has_failed=bool(known.error or (queue.error and not _is_tried_again(queue, now))),
            )
        )
    return reports


def _states(settings: Settings, table: str, name: str) -> tuple[OutputState, OutputState]:
    """Returns the state of an output, and that of the queue before its receiver."""
    return StateFile(settings, table, name).read(), StateFile(settings, table, name, of_queue=True).read()


def _error(known: OutputState, queue: OutputState) -> str:
    waits = f"{queue.waiting:,} changes wait: {queue.error}" if queue.error else ""
    return "; ".join(filter(None, (known.error, waits)))


def _is_tried_again(queue: OutputState, now: datetime) -> bool:
    return queue.tried_since is not None and now - queue.tried_since < PATIENCE


def _lag(lake: Lake, table: str, version: int | None, now: datetime) -> tuple[int | None, float | None]:
    if version is None or not lake.exists(table):
        return None, None
    behind = max(0, lake.version(table) - version)
    if not behind:
        return 0, None
    try:
        [first] = lake.commits(table, version, version + 1)
    except (FileNotFoundError, DamagedLog):
        return behind, None
    return behind, max(0.0, ((epoch_ms(now) or 0) - first.timestamp_ms) / 1000)


def _state(known: OutputState, waiting: int, behind: int | None, *, runs: bool) -> str:
    if known.error:
        return "failed"
    if not runs:
        return "does not run"
    if known.pages:
        return f"page {known.page + 1} of {known.pages}"
    if waiting:
        return "waits for its receiver"
    return "has not begun" if behind is None else "follows" if behind else "shows all"
