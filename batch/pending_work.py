"""Detects pending work for reconcile from the Delta logs alone, without Spark and without opening data files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from twofold.batch.ledgers.reconcile_position import ReconcilePosition, is_far, reconcile_positions, splits
from twofold.batch.ledgers.run_result import RunResult
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.errors import BadArgument
from twofold.tables.declare.metadata_columns import LATE_BY_MS
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import definition, is_same
from twofold.tables.refresh.rewound import next_versions
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings


def untouched(settings: Settings, tables: Sequence[str] = ()) -> list[RunResult] | None:
    """Returns the results of a reconcile without work; None if a table has work.

    Raises:
        BadArgument: an unknown table.
    """
    began = time.monotonic()
    registry, lake = load(), Lake(settings)
    chosen = registry.chosen(tables)
    if registry.left_out(tables) or not nothing_to_do(lake, registry, chosen):
        return None
    return [RunResult.idle(table.full_name, time.monotonic() - began) for table in chosen]


def pending_tables(settings: Settings, tables: Sequence[str] = ()) -> list[str]:
    """Returns the full names of tables that may have work for reconcile, and of those below them, in dependency order.

    Like `nothing_to_do`, it stores the checked positions from time to time.

    Raises:
        BadArgument: an unknown table.
    """
    registry, lake = load(), Lake(settings)
    pending: list[str] = []
    passed: dict[str, ReconcilePosition] = {}
    for table, has_work, position in _looked_at(lake, registry, registry.chosen(tables)):
        if has_work or any(above.full_name in pending for above in registry.upstream(table)):
            pending.append(table.full_name)
        elif position:
            passed[table.full_name] = position
    _note(lake, passed)
    return pending


def nothing_to_do(lake: Lake, registry: Registry, tables: Sequence[Table]) -> bool:
    """Whether no change since their last reconcile can have made a row of these tables wrong, or waits to be recorded.

    True is certain; the checked positions are stored from time to time, so that they are not checked again. False is a
    suspicion: an absent statistic or a commit that was cleaned up counts as one.
    """
    passed: dict[str, ReconcilePosition] = {}
    for table, has_work, position in _looked_at(lake, registry, tables):
        if has_work:
            return False
        if position:
            passed[table.full_name] = position
    _note(lake, passed)
    return True


def _looked_at(
    lake: Lake, registry: Registry, tables: Sequence[Table]
) -> Iterator[tuple[Table, bool, ReconcilePosition | None]]:
    """Yields each table, whether it may have work, and the position to store if many commits were checked in vain."""
    positions, logs = reconcile_positions(lake), _Logs(lake)
    for table in tables:
        before = positions.get(table.full_name)
        after = _after(logs, registry, table, before)
        if after is None or not is_far(before.consumed if before else {}, after.consumed):
            yield table, after is None, None
        else:  # the engine Spark writes positions, too, so that a whole run has to note this one
            yield table, lake.settings.engine == "spark", after


def _note(lake: Lake, passed: Mapping[str, ReconcilePosition]) -> None:
    if passed:
        from twofold.batch.ledgers.run_ledgers import Ledgers

        Ledgers(lake).move(passed)


class _Facts(NamedTuple):
    """Facts of a commit; `late_ms`: the greatest lateness of its rows, None if unknown."""

    changes: bool
    rewrites: bool
    cause: object
    has_run: bool
    late_ms: int | None


@dataclass(frozen=True)
class _Logs:
    """Caches the logs as of their first use: each commit is read once for all tables."""

    lake: Lake
    _versions: dict[str, int] = field(default_factory=dict)
    _known: dict[tuple[str, int], _Facts] = field(default_factory=dict)

    def version(self, name: str) -> int:
        if name not in self._versions:
            self._versions[name] = self.lake.version(name)
        return self._versions[name]

    def commits(self, name: str, after: int, through: int) -> Iterator[_Facts]:
        """Yields the facts of commits in `(after, through]`, by version."""
        for version in range(after + 1, through + 1):
            if (name, version) not in self._known:
                (commit,) = self.lake.commits(name, version - 1, version)
                self._known[name, version] = _facts(commit)
            yield self._known[name, version]


def _facts(commit: LoggedCommit) -> _Facts:
    late = [added.greatest.get(LATE_BY_MS) for added in commit.added]
    lateness = [ms for ms in late if isinstance(ms, int)]
    late_ms = max(lateness, default=-1) if len(lateness) == len(late) else None
    return _Facts(commit.changes, commit.rewrites, commit.info.get("cause"), "run" in commit.info, late_ms)


def _after(logs: _Logs, registry: Registry, table: Table, before: ReconcilePosition | None) -> ReconcilePosition | None:
    """Returns the table's reconcile position after a check of the logs; None if it has work."""
    name, mark = table.full_name, definition(table, registry)
    if not logs.lake.exists(name):
        return None
    own, checkpoint = logs.version(name), Checkpoint.of_table(logs.lake.settings, table)
    now_ms = checkpoint.watermark_ms() if table.closes_at else None
    is_open = table.closes_at and checkpoint.stream and now_ms is None  # no row has closed yet
    if before is None and is_open:
        before = ReconcilePosition(stream=checkpoint.stream, fingerprint=mark)
    if before is None:
        return None
    try:
        if _has_unrecorded(logs, name, before.consumed.get(name, -1), own):
            return None
        if is_open:
            return replace(before, consumed={**before.consumed, name: own})
        if before.stream != checkpoint.stream or not is_same(before.fingerprint, mark):
            return None
        if any(now_ms is None or closes_ms < now_ms for closes_ms in before.pending.values()):
            return None
        sources = registry.upstream(table)
        if any(_is_touched(logs, registry, table, checkpoint, source, before) for source in sources):
            return None
    except (FileNotFoundError, BadArgument):
        return None
    looked_at = {source.full_name: logs.version(source.full_name) for source in sources}
    return replace(before, consumed={**before.consumed, **looked_at, name: own})


def has_taken_in(
    lake: Lake, registry: Registry, table: Table, checkpoint: Checkpoint, source: Topic | Table, through: int
) -> bool:
    """Whether the stream of a table that follows changes has recomputed all that a version of this input touches."""
    if not registry.strategy(table).follows_changes:
        return False
    following = dict(zip(table.inputs, next_versions(lake, registry, table, checkpoint), strict=False))
    places = [n for n, s in zip(table.inputs, registry.upstream(table), strict=True) if s.full_name == source.full_name]
    read = min((following.get(place, 0) for place in places), default=0)
    try:
        return read > through or not any(c.changes for c in lake.commits(source.full_name, read - 1, through))
    except FileNotFoundError:  # the changes that it has not recomputed are unknown
        return False


def _has_unrecorded(logs: _Logs, name: str, after: int, newest: int) -> bool:
    """Whether a batch run published into the table, and a crash kept that out of the ledger."""
    return any(c.changes and c.has_run for c in logs.commits(name, after, newest))


def _is_touched(
    logs: _Logs,
    registry: Registry,
    table: Table,
    checkpoint: Checkpoint,
    source: Topic | Table,
    before: ReconcilePosition,
) -> bool:
    name = source.full_name
    after, through = before.consumed.get(name, -1), logs.version(name)
    if after >= through or has_taken_in(logs.lake, registry, table, checkpoint, source, through):
        return False
    if len(checkpoint.splits.versions_of(name)) > before.consumed.get(splits(name), 0):
        return True
    drops_ms = table.watermark_ms if table.closes_at else None
    for commit in logs.commits(name, after, through):
        if not commit.changes or commit.cause == "idle":  # a heartbeat is no record
            continue
        if isinstance(source, Table) or commit.rewrites or commit.cause == "replay":
            return True
        if drops_ms is not None and (commit.late_ms is None or commit.late_ms >= drops_ms):
            return True
    return False
