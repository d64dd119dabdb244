"""Finds what the streams missed, recomputes it from the log, and publishes exactly the difference."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from infra.errors import UnexplainedDifference
from infra.locks import is_held
from tables.changes import changed_rows, late_within_commit, missed_by_streams
from tables.checkpoint import Checkpoint
from tables.declaration import Table, Topic
from tables.decode import LATE_BY_MS, OFFSET, PARTITION
from tables.fingerprint import fingerprint, require_one_definition
from tables.ledgers import Evidence, Ledgers, Reconciled
from tables.outcome import Cause, Outcome
from tables.refresh import Refresher, everything, run_name
from tables.scope import Scope, epoch_ms, merged, scopes_of, time_column
from tables.setup import Platform, opened

if TYPE_CHECKING:
    from infra.settings import Settings

_PATIENCE_S = 60.0
_log = logging.getLogger("twofold.reconcile")


def reconcile(settings: Settings, tables: Sequence[str] = (), *, verify: bool = False) -> list[Outcome]:
    """Correct the closed rows of tables by what the log says, each table after those that it reads.

    Args:
        tables: full or bare names; none: every table.
        verify: recompute every closed row besides, and count those that differ though nothing touched them.

    Returns:
        One outcome per table and cause, in dependency order; a table that nothing touched has one of zeros.

    Raises:
        BadArgument: an unknown table; nothing was touched.
        QualityFailed: recomputed rows break their rules; the tables before it are published, this one is not.
        UnexplainedDifference: with `verify`, after all tables were looked at.
    """
    from tables.registry import load

    registry = load()
    wanted = registry.chosen(tables)
    with opened(settings, "reconcile", [table.domain for table in wanted]) as platform:
        outcomes: list[Outcome] = []
        for table in wanted:
            outcomes += Reconcile(platform, table).run(verify=verify)
    unexplained = [o for o in outcomes if o.unexplained]
    if unexplained:
        raise UnexplainedDifference(
            "; ".join(f"{o.table}: {o.unexplained} rows differ and nothing touched them" for o in unexplained) + ".",
            hint="Somebody wrote to the table past the platform, or the declaration changed: compare with "
            "`./twofold sql`, then `./twofold backfill` the range.",
            tables=[o.table for o in unexplained],
        )
    return outcomes


@dataclass(frozen=True)
class Touched:
    """What forces a recomputation, and of what."""

    cause: Cause
    rows: int = 0
    scopes: Sequence[Scope] = ()
    evidence: Sequence[Evidence] = ()


@dataclass
class Reconcile:
    """One table's reconcile, pinned to what was committed when it began.

    The stream's watermark is read before the versions of the inputs: a row that was closed by then was computed from
    what these versions hold, so nothing that is read here can be ahead of it.
    """

    platform: Platform
    table: Table
    _started: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        lake, table = self.platform.lake, self.table
        checkpoint = Checkpoint.of(lake.settings, table)
        self._stream = checkpoint.stream
        self._checkpoint = checkpoint
        self._watermark_ms = checkpoint.watermark_ms() if table.closes_at else None
        self._sources = self.platform.registry.upstream(table)
        self._pinned = {s.full_name: lake.version(s.full_name) for s in self._sources}
        self._splits = {s.full_name: checkpoint.splits.of(s.full_name) for s in self._sources}
        self._ledgers = Ledgers(lake, self.platform.spark)

    @property
    def _consumed(self) -> dict[str, int]:
        """What this run looks through: versions by input, and how many of their commits that were taken in parts."""
        seen = {_splits(source): len(self._splits[source.full_name]) for source in self._sources}
        return {**self._pinned, **{name: count for name, count in seen.items() if count}}

    def run(self, *, verify: bool) -> list[Outcome]:
        """Correct the table, then verify it when asked to.

        Raises:
            DefinitionChanged: its rows were computed by another definition.
        """
        require_one_definition(self.platform.lake, self.table)
        before = self._ledgers.reconciled(self.table.full_name)
        if before.stream != self._stream:
            # Another stream wrote the table from the beginning: all that it may have dropped must be looked at.
            before = Reconciled(stream=self._stream)
        self._ledgers.record_corrections(self.table.full_name, self.table.key)
        self._let_the_stream_catch_up()
        if self.table.closes_at and self._watermark_ms is None and self._stream:
            outcomes = [self._outcome("late", Touched("late"))]  # no row has closed yet
        else:
            outcomes = self._correct(before)
        if verify:
            outcomes[-1] = replace(outcomes[-1], unexplained=self._unexplained())
        return outcomes

    def _let_the_stream_catch_up(self) -> None:
        """Wait, within bounds, until the running stream of a table that reads tables has taken in what is pinned.

        What it is about to do by itself is no correction.
        """
        lake, deadline = self.platform.lake, time.monotonic() + _PATIENCE_S
        if self.platform.registry.strategy(self.table) != "touched":
            return
        pinned = [self._pinned[s.full_name] for s in self._sources]
        while is_held(lake.settings.driver_lock(self.table.domain)) and time.monotonic() < deadline:
            if all(a > b for a, b in zip(self._checkpoint.next_versions() or [-1], pinned, strict=False)):
                return
            time.sleep(0.2)

    def _correct(self, before: Reconciled) -> list[Outcome]:
        causes = [t for t in self._touched(before) if t.rows or t.scopes]
        if not causes:
            outcome = self._outcome("late", Touched("late"))
            self._remember(outcome, before, [])
            return [outcome]
        outcomes = []
        pending: list[Scope] = []
        for touched in causes:
            left = [s for s in touched.scopes if self._reaches_open(s)]
            pending += left
            outcomes.append(self._publish(touched, len(left)))
        self._remember(outcomes[-1], before, merged(pending), others=outcomes[:-1])
        return outcomes

    def _publish(self, touched: Touched, pending: int) -> Outcome:
        run = run_name(touched.cause)
        name = self.table.full_name
        self._ledgers.record_evidence(run, name, touched.evidence)
        version = self.platform.lake.version(name)
        # Inputs are read as they are now: a recomputation from older ones could undo what others published since.
        written = self._refresher({}).publish(touched.scopes, {"cause": touched.cause, "run": run}, check=True)
        self._ledgers.record_corrections(name, self.table.key)
        outcome = self._outcome(touched.cause, touched, run=run)
        outcome = replace(outcome, pending=pending).publishing(written, version)
        _log.info(
            "reconciled table=%s cause=%s touched=%d changed=%d", name, touched.cause, touched.rows, outcome.changed
        )
        return outcome

    def _remember(
        self, outcome: Outcome, before: Reconciled, pending: Sequence[Scope], others: Sequence[Outcome] = ()
    ) -> None:
        """Keep the run, unless it would say what the last one said."""
        state = Reconciled(consumed=self._consumed, stream=self._stream, pending=pending)
        if not outcome.changed and not others and state == replace(before, pending=list(before.pending)):
            return
        mark = fingerprint(self.table)
        for other in others:
            self._ledgers.record_run(other, None, mark)
        self._ledgers.record_run(outcome, state, mark)

    def _touched(self, before: Reconciled) -> Iterator[Touched]:
        """What the inputs' new versions touch, by cause; pending scopes come back under their old one."""
        late, replayed, upstream = Touched("late", scopes=before.pending), Touched("replay"), Touched("upstream")
        for source in self._sources:
            after, through = before.consumed.get(source.full_name, -1), self._pinned[source.full_name]
            columns = [*self.table.recompute_by, PARTITION, OFFSET, LATE_BY_MS]
            columns += [c] if (c := time_column(source)) else []
            lake = self.platform.lake
            if isinstance(source, Topic):
                drops = self.table.watermark_ms if self.table.closes_at else None
                missed = missed_by_streams(lake, source.full_name, after, through, columns, drops)
                parts = [missed.late, *self._late_in_splits(source, before, columns)]
                late = self._with(late, source, pa.concat_tables(parts), correct=self.table.late == "correct")
                replayed = self._with(replayed, source, missed.replayed)
            else:
                upstream = self._with(upstream, source, changed_rows(lake, source.full_name, after, through, columns))
        yield from (late, replayed, upstream)

    def _late_in_splits(self, source: Topic, before: Reconciled, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Rows that may be late within a commit that the stream took in parts."""
        if self.table.closes_at:
            for version in self._splits[source.full_name][before.consumed.get(_splits(source), 0) :]:
                yield late_within_commit(
                    self.platform.lake, source.full_name, version, columns, source.event_time, self.table.watermark_ms
                )

    def _with(self, touched: Touched, source: Topic | Table, rows: pa.Table, *, correct: bool = True) -> Touched:
        if not len(rows):
            return touched
        evidence = _evidence(self.table, source, rows) if isinstance(source, Topic) else []
        scopes = scopes_of(self.table, source, rows) if correct else []
        return Touched(
            touched.cause,
            touched.rows + len(rows),
            merged([*touched.scopes, *scopes]),
            [*touched.evidence, *evidence],
        )

    def _reaches_open(self, scope: Scope) -> bool:
        """Whether rows of the scope can still be the stream's: looked at again once they are closed."""
        if self._watermark_ms is None or scope.interval is None:
            return False
        return scope.interval.end + (self.table.lookback_ms or 0) >= self._watermark_ms

    def _refresher(self, versions: Mapping[str, int] | None = None) -> Refresher:
        p = self.platform
        pinned = self._pinned if versions is None else versions
        return Refresher(p.spark, p.lake, p.registry, self.table, self._watermark_ms, pinned)

    def _unexplained(self) -> int:
        """Closed rows that differ from a recomputation of everything, less those that something touches right now."""
        if self.table.closes_at and self._watermark_ms is None and self._stream:
            return 0
        differing = self._refresher().difference(everything(self.table))
        columns = [*self.table.recompute_by, *([self.table.event_time] if self.table.event_time else [])]
        rows = differing.select(columns) if isinstance(differing, pa.Table) else differing.select(*columns).toArrow()
        if not len(rows):
            return 0
        in_flight = [s for t in self._in_flight() for s in t.scopes]
        differing_scopes = _scopes_of_rows(self.table, rows)
        return sum(not any(_covers(s, d) for s in in_flight) for d in differing_scopes)

    def _in_flight(self) -> Iterator[Touched]:
        """What was committed since this run began, or is dropped by declaration."""
        later = Reconcile(self.platform, self.table)
        yield from later._touched(Reconciled(consumed=self._consumed, stream=self._stream))
        if self.table.late == "drop":
            keeps = replace(self.table, late="correct")
            for name in ("domain", "name", "description"):
                object.__setattr__(keeps, name, getattr(self.table, name))
            yield from Reconcile(self.platform, keeps)._touched(Reconciled(stream=self._stream))

    def _outcome(self, cause: Cause, touched: Touched, run: str | None = None) -> Outcome:
        return Outcome(
            table=self.table.full_name,
            cause=cause,
            run=run or run_name(cause),
            touched=touched.rows,
            scopes=len(touched.scopes),
            seconds=time.monotonic() - self._started,
        )


def _splits(source: Topic | Table) -> str:
    """The name under which `consumed` counts the split commits of an input."""
    return f"{source.full_name}#splits"


def _evidence(table: Table, source: Topic, rows: pa.Table) -> list[Evidence]:
    return [
        Evidence(
            source=source.full_name,
            partition=row[PARTITION],
            offset=row[OFFSET],
            late_by_ms=row[LATE_BY_MS],
            event_ms=epoch_ms(row[source.event_time]),
            values=tuple(row.get(column, ...) for column in table.recompute_by),
        )
        for row in rows.to_pylist()
    ]


def _scopes_of_rows(table: Table, rows: pa.Table) -> list[Scope]:
    """One scope per row, no wider than the row itself."""
    from tables.scope import Interval

    return [
        Scope(
            tuple(row[c] for c in table.recompute_by),
            Interval(at, at + 1) if table.event_time and (at := epoch_ms(row[table.event_time])) is not None else None,
        )
        for row in rows.to_pylist()
    ]


def _covers(scope: Scope, row: Scope) -> bool:
    if any(a is not ... and a != b for a, b in zip(scope.values, row.values, strict=True)):
        return False
    if scope.interval is None or row.interval is None:
        return True
    return scope.interval.start <= row.interval.start < scope.interval.end
