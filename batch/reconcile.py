"""Finds what the streams missed, recomputes it from the log, and publishes exactly the difference."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.evidence import evidence_of, touch
from batch.plan import has_taken_in, has_work, idle
from batch.unexplained import named, require_explained
from infra.errors import DefinitionChanged
from infra.locks import is_held
from tables.changes import changed_rows, late_within_commit, missed_by_streams
from tables.checkpoint import Checkpoint
from tables.declaration import Table, Topic
from tables.decode import LATE_BY_MS, OFFSET, PARTITION
from tables.evidence import Evidence
from tables.fingerprint import fingerprint, require_one_definition
from tables.fold import unfolded_rows
from tables.ledgers import Ledgers, Reconciled
from tables.outcome import Cause, Outcome, run_name
from tables.plain import plain
from tables.refresh import Refresher, everything
from tables.scope import Scope, merged, scope_of_row, scopes_of, time_column
from tables.setup import Platform, opened
from tables.standing import splits, watermark
from tables.writer import CHANGE, Written

if TYPE_CHECKING:
    from infra.settings import Settings

Approve = Callable[[Outcome], bool]
"""Says whether the unexplained rows of an outcome shall be overwritten."""

_PATIENCE_S = 60.0
_PASSED_OVER = 500  # commits without anything late that are looked through again at most
_log = logging.getLogger("twofold.reconcile")


def reconcile(
    settings: Settings, tables: Sequence[str] = (), *, verify: bool = False, repair: Approve | None = None
) -> list[Outcome]:
    """Correct the closed rows of tables by what the log says, each table after those that it reads.

    Spark is started once, when the first table needs it; where the Delta logs tell of nothing to do it is not.

    Args:
        tables: full or bare names; none: every table.
        verify: recompute every closed row besides, name those that differ though nothing touched them, and hold the
            table against its history: what its stream wrote, with the corrections of the ledger.
        repair: verify, ask this about each outcome with unexplained rows, and overwrite those rows where it says yes.

    Returns:
        One outcome per table and cause, in dependency order; a table that nothing touched has one of zeros.

    Raises:
        BadArgument: an unknown table; nothing was touched.
        DefinitionChanged: after all other tables were corrected; the rows of a table were computed by another
            definition than the declared one.
        QualityFailed: recomputed rows break their rules; the tables before it are published, this one is not.
        UnexplainedDifference: with `verify`, after all tables were looked at; of what was not repaired.
    """
    from tables.registry import load

    wanted = load().chosen(tables)
    with opened(settings, "reconcile", [table.domain for table in wanted]) as platform:
        return reconcile_tables(platform, wanted, verify=verify, repair=repair)


def reconcile_tables(
    platform: Platform, tables: Sequence[Table], *, verify: bool = False, repair: Approve | None = None
) -> list[Outcome]:
    """The same on a platform that is open, of tables each of which comes after those that it reads."""
    outcomes: list[Outcome] = []
    unfolded: list[str] = []
    refused: list[DefinitionChanged] = []
    for table in tables:
        # Only now: what was published above it is news for this table.
        if not verify and not repair and not has_work(platform.lake, platform.registry, table):
            outcomes.append(idle(table))
            continue
        try:
            found = Reconcile(platform, table).run(verify=verify or repair is not None)
        except DefinitionChanged as changed:
            refused.append(changed)
            continue
        if repair and found[-1].unexplained and repair(found[-1]):
            found[-1:] = Reconcile(platform, table).repair(found[-1])
        if verify and (rows := unfolded_rows(platform.lake, table)):
            unfolded.append(f"{table.full_name}: {rows} rows are not what its stream and its corrections say")
        outcomes += found
    require_explained(outcomes, unfolded, refused)
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

    @cached_property
    def _ledgers(self) -> Ledgers:
        lake = self.platform.lake
        return Ledgers(lake, self.platform.spark if lake.settings.engine == "spark" else None)

    @property
    def _consumed(self) -> dict[str, int]:
        """What this run looks through: versions, its own among them, commits taken in parts, and the watermark."""
        name = self.table.full_name
        seen = {splits(source): len(versions) for source, versions in self._splits.items() if versions}
        closed = {} if self._watermark_ms is None else {watermark(name): self._watermark_ms}
        return {**self._pinned, name: self.platform.lake.version(name), **seen, **closed}

    def run(self, *, verify: bool) -> list[Outcome]:
        """Correct the table, then verify it when asked to.

        Raises:
            DefinitionChanged: its rows were computed by another definition.
        """
        require_one_definition(self.platform.lake, self.table)
        before = self._before()
        self._ledgers.catch_up(self.table)
        self._let_the_stream_catch_up()
        outcomes = [self._outcome("late", Touched("late"))] if self._is_open else self._correct(before)
        if verify:
            rows = self._unexplained()
            outcomes[-1] = replace(outcomes[-1], unexplained=len(rows), differences=named(self.table, rows))
        return outcomes

    def unseen(self) -> list[Evidence]:
        """The records that the next run will look at first."""
        return [e for touched in self._touched(self._before()) for e in touched.evidence]

    def _before(self) -> Reconciled:
        """Where the last run stands.

        Where another stream has written the table from the beginning, all that it may have dropped must be looked at.
        """
        before = self._ledgers.reconciled(self.table.full_name)
        return before if before.stream == self._stream else Reconciled(stream=self._stream)

    @property
    def _is_open(self) -> bool:
        """No row has closed yet: all are the stream's."""
        return bool(self.table.closes_at and self._watermark_ms is None and self._stream)

    def repair(self, found: Outcome) -> list[Outcome]:
        """Overwrite the rows that a verification could not explain, under the cause `repair`, and look again.

        Args:
            found: the verification; rows that differ since then only are left alone. Where it names a part of its rows
                and more differ now, nothing is done.

        Returns:
            The verification, its rows no longer unexplained, then the repair.
        """
        known = {json.dumps(d.key) for d in found.differences}
        chosen = self._unexplained().to_pylist()
        if len(found.differences) == found.unexplained:
            chosen = [row for row in chosen if json.dumps(plain({c: row[c] for c in self.table.key})) in known]
        elif len(chosen) > found.unexplained:
            return [found]
        scopes = merged(scope_of_row(self.table, row) for row in chosen)
        outcome = self._publish(Touched("repair", len(chosen), scopes), 0)
        left = self._unexplained()
        outcome = replace(outcome, unexplained=len(left), differences=named(self.table, left))
        self._ledgers.record_run(outcome, None, fingerprint(self.table))
        return [replace(found, unexplained=0, differences=()), outcome]

    def _let_the_stream_catch_up(self) -> None:
        """Wait, within bounds, until the running stream of a table that reads tables has taken in what is pinned.

        What it is about to do by itself is no correction. A table that the driver does not keep is not waited for.
        """
        settings, deadline = self.platform.lake.settings, time.monotonic() + _PATIENCE_S
        if self.platform.registry.strategy(self.table) != "touched":
            return
        pinned = [self._pinned[s.full_name] for s in self._sources]
        while is_held(settings.driver_lock(self.table.domain)) and time.monotonic() < deadline:
            following = self._checkpoint.next_versions()
            if not following and not is_held(settings.stream_lock(self.table.full_name)):
                return
            if all(a > b for a, b in zip(following or [-1], pinned, strict=False)):
                return
            time.sleep(0.2)

    def _correct(self, before: Reconciled) -> list[Outcome]:
        due, pending = self._due(before)
        causes = [t for t in self._touched(before, due) if t.rows or t.scopes]
        if not causes:
            outcome = self._outcome("late", Touched("late"))
            if self._is_far_from(before):
                self._remember(outcome, pending)
            return [outcome]
        outcomes = []
        for touched in causes:
            left = [s for s in touched.scopes if self._reaches_open(s)]
            pending += left
            outcomes.append(self._publish(touched, len(left)))
        self._remember(outcomes[-1], merged(pending), others=outcomes[:-1])
        return outcomes

    def _due(self, before: Reconciled) -> tuple[list[Scope], list[Scope]]:
        """Pending scopes of which rows may have closed since the last run, and the others."""
        now, then = self._watermark_ms, before.consumed.get(watermark(self.table.full_name))

        def is_due(scope: Scope) -> bool:
            return now is None or scope.interval is None or (now != then and scope.interval.start < now)

        return [s for s in before.pending if is_due(s)], [s for s in before.pending if not is_due(s)]

    def _is_far_from(self, before: Reconciled) -> bool:
        """Whether the next run should not look again through what this one passed over."""
        if before.stream != self._stream or not before.consumed:
            return True
        return any(n - before.consumed.get(name, -1) > _PASSED_OVER for name, n in self._pinned.items())

    def _publish(self, touched: Touched, pending: int) -> Outcome:
        run = run_name(touched.cause)
        name = self.table.full_name
        self._ledgers.record_evidence(run, name, touched.evidence)
        version = self.platform.lake.version(name)
        # Inputs are read as they are now: a recomputation from older ones could undo what others published since.
        written = Written()
        if touched.scopes:
            written = self._refresher({}).publish(touched.scopes, {"cause": touched.cause, "run": run}, check=True)
        self._ledgers.record_corrections(self.table)
        outcome = self._outcome(touched.cause, touched, run=run)
        outcome = replace(outcome, pending=pending).publishing(written, version)
        _log.info(
            "reconciled table=%s cause=%s touched=%d changed=%d", name, touched.cause, touched.rows, outcome.changed
        )
        return outcome

    def _remember(self, outcome: Outcome, pending: Sequence[Scope], others: Sequence[Outcome] = ()) -> None:
        mark = fingerprint(self.table)
        for other in others:
            self._ledgers.record_run(other, None, mark)
        state = Reconciled(consumed=self._consumed, stream=self._stream, pending=pending)
        self._ledgers.record_run(outcome, state, mark)

    def _touched(
        self, before: Reconciled, due: Sequence[Scope] = (), *, with_stream: bool = False
    ) -> Iterator[Touched]:
        """What the inputs' new versions touch, by cause; pending scopes that are due come back as late.

        Args:
            with_stream: also what the stream of a table that follows changes has taken in by itself.
        """
        late, replayed, upstream = Touched("late", scopes=due), Touched("replay"), Touched("upstream")
        for source in self._sources:
            after, through = before.consumed.get(source.full_name, -1), self._pinned[source.full_name]
            if not with_stream and self._took_in(source, through):
                continue
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
                try:
                    rows = changed_rows(lake, source.full_name, after, through, columns)
                except FileNotFoundError:  # what changed is no longer known, so all of the table may have
                    upstream = replace(upstream, rows=lake.rows(source.full_name), scopes=everything(self.table))
                    continue
                upstream = self._with(upstream, source, rows)
                inherited = self._inherited(source, after, through)
                upstream = replace(upstream, evidence=[*upstream.evidence, *inherited])
        yield from (late, replayed, upstream)

    def _took_in(self, source: Topic | Table, version: int) -> bool:
        p = self.platform
        return has_taken_in(p.lake, p.registry, self.table, self._checkpoint, source, version)

    def _inherited(self, source: Table, after: int, through: int) -> Iterator[Evidence]:
        """The records behind the corrections of a table above, with what of this table they touch."""
        for correction in self._ledgers.corrections(source.full_name, after, through):
            records = correction["evidence"] or [{"source": source.full_name}]
            sides = [json.loads(correction[side]) for side in ("before", "after") if correction[side]]
            touches = {json.dumps(touch): touch for touch in (touch(self.table, source, row) for row in sides)}
            yield from (Evidence(**record, **touch) for touch in touches.values() for record in records)

    def _late_in_splits(self, source: Topic, before: Reconciled, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Rows that may be late within a commit that the stream took in parts."""
        if self.table.closes_at:
            for version in self._splits[source.full_name][before.consumed.get(splits(source.full_name), 0) :]:
                yield late_within_commit(
                    self.platform.lake, source.full_name, version, columns, source.event_time, self.table.watermark_ms
                )

    def _with(self, touched: Touched, source: Topic | Table, rows: pa.Table, *, correct: bool = True) -> Touched:
        if not len(rows):
            return touched
        evidence = evidence_of(self.table, source, rows) if isinstance(source, Topic) else []
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

    def _unexplained(self) -> pa.Table:
        """Closed rows that differ from a recomputation of everything, less those that something touches right now.

        Returns:
            Rows as `tables.difference` tells them.
        """
        empty = pa.table({CHANGE: pa.array([], pa.string())})
        if self._is_open:
            return empty
        differing = self._refresher().difference(everything(self.table))
        rows = differing if isinstance(differing, pa.Table) else differing.toArrow()
        if not len(rows):
            return empty
        return self._outside(rows, [s for t in self._in_flight() for s in t.scopes])

    def _outside(self, rows: pa.Table, scopes: Sequence[Scope]) -> pa.Table:
        """The rows of the table that none of the scopes covers."""
        columns = {*self.table.recompute_by, *([self.table.event_time] if self.table.event_time else [])}
        places = [scope_of_row(self.table, row) for row in rows.select(sorted(columns)).to_pylist()]
        return rows.filter(pa.array([not any(s.covers(place) for s in scopes) for place in places], pa.bool_()))

    def _in_flight(self) -> Iterator[Touched]:
        """What was committed since this run began, or is dropped by declaration."""
        later = Reconcile(self.platform, self.table)
        yield from later._touched(Reconciled(consumed=self._consumed, stream=self._stream), with_stream=True)
        if self.table.late == "drop":
            keeps = replace(self.table, late="correct")
            for name in ("domain", "name", "description"):
                object.__setattr__(keeps, name, getattr(self.table, name))
            yield from Reconcile(self.platform, keeps)._touched(Reconciled(stream=self._stream), with_stream=True)

    def _outcome(self, cause: Cause, touched: Touched, run: str | None = None) -> Outcome:
        return Outcome(
            table=self.table.full_name,
            cause=cause,
            run=run or run_name(cause),
            touched=touched.rows,
            scopes=len(touched.scopes),
            seconds=time.monotonic() - self._started,
        )
