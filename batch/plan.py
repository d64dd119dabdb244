"""Tells from the Delta logs alone whether reconcile has work: no Spark, and no data file opened."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.errors import BadArgument
from tables.checkpoint import Checkpoint
from tables.columns import LATE_BY_MS
from tables.declaration import Table, Topic
from tables.fingerprint import fingerprint
from tables.lake import Lake
from tables.outcome import Outcome, run_name
from tables.registry import Registry, load
from tables.standing import Standing, splits, standings, watermark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.settings import Settings


def untouched(settings: Settings, tables: Sequence[str] = ()) -> list[Outcome] | None:
    """What reconcile reports where nothing is to be done; None where a table has work.

    Raises:
        BadArgument: an unknown table.
    """
    began = time.monotonic()
    registry, lake = load(), Lake(settings)
    wanted = registry.chosen(tables)
    try:
        known = standings(lake)
    except BadArgument:  # no ledger yet: nothing was ever reconciled
        return None
    if any(has_work(lake, registry, table, known) for table in wanted):
        return None
    return [idle(table, time.monotonic() - began) for table in wanted]


def idle(table: Table, seconds: float = 0.0) -> Outcome:
    """The outcome of a table that nothing touched."""
    return Outcome(table=table.full_name, cause="late", run=run_name("late"), seconds=seconds)


def has_work(lake: Lake, registry: Registry, table: Table, known: Mapping[str, Standing] | None = None) -> bool:
    """Whether anything since the last reconcile can have made a row of the table wrong, or waits to be recorded.

    False is certain. True is a suspicion: an absent statistic or a commit that was cleaned up counts as one.

    Args:
        known: of every table; read from the ledger when not given.
    """
    name, checkpoint = table.full_name, Checkpoint.of(lake.settings, table)
    before = (standings(lake) if known is None else known).get(name)
    now_ms = checkpoint.watermark_ms() if table.closes_at else None
    if table.closes_at and checkpoint.stream and now_ms is None:  # no row has closed yet
        return _has_unrecorded(lake, name, before.consumed.get(name, -1) if before else -1)
    if before is None or before.stream != checkpoint.stream or before.fingerprint != fingerprint(table):
        return True
    if _may_be_due(before, now_ms, before.consumed.get(watermark(name))):
        return True
    try:
        return _has_unrecorded(lake, name, before.consumed.get(name, -1)) or any(
            _is_touched(lake, registry, table, checkpoint, source, before) for source in registry.upstream(table)
        )
    except (FileNotFoundError, BadArgument):
        return True


def has_taken_in(
    lake: Lake, registry: Registry, table: Table, checkpoint: Checkpoint, source: Topic | Table, through: int
) -> bool:
    """Whether the stream of a table that follows changes has recomputed all that a version of this input touches."""
    if not registry.strategy(table).follows_changes:
        return False
    following = dict(zip(table.inputs, checkpoint.next_versions(), strict=False))
    places = [n for n, s in zip(table.inputs, registry.upstream(table), strict=True) if s.full_name == source.full_name]
    read = min((following.get(place, 0) for place in places), default=0)
    try:
        return read > through or not any(c.changes for c in lake.commits(source.full_name, read - 1, through))
    except FileNotFoundError:  # what it has not recomputed is no longer known
        return False


def _may_be_due(before: Standing, now_ms: int | None, then_ms: int | None) -> bool:
    """Whether a scope that waited for rows to close may hold one that has."""
    if now_ms == then_ms:
        return False
    return any(now_ms is None or scope["interval"] is None or scope["interval"][0] < now_ms for scope in before.pending)


def _has_unrecorded(lake: Lake, name: str, after: int) -> bool:
    """Whether a batch run published into the table, and a crash kept that out of the ledger."""
    newest = lake.version(name)
    return after < newest and any(c.changes and "run" in c.info for c in lake.commits(name, after, newest))


def _is_touched(
    lake: Lake, registry: Registry, table: Table, checkpoint: Checkpoint, source: Topic | Table, before: Standing
) -> bool:
    name = source.full_name
    after, through = before.consumed.get(name, -1), lake.version(name)
    if after >= through or has_taken_in(lake, registry, table, checkpoint, source, through):
        return False
    if len(checkpoint.splits.of(name)) > before.consumed.get(splits(name), 0):
        return True
    drops_ms = table.watermark_ms if table.closes_at else None
    for commit in lake.commits(name, after, through):
        if not commit.changes or commit.info.get("cause") == "idle":  # a heartbeat is no record
            continue
        if isinstance(source, Table) or commit.rewrites or commit.info.get("cause") == "replay":
            return True
        if drops_ms is not None:
            greatest = [added.greatest.get(LATE_BY_MS) for added in commit.added]
            if any(not isinstance(ms, int) or ms >= drops_ms for ms in greatest):
                return True
    return False
