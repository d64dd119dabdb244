"""Pins the versions and the watermark from which batch work on one table starts."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from twofold.batch.late_rows import late_within_commit, missed_by_streams
from twofold.batch.ledgers.causes import CausingRecord
from twofold.batch.ledgers.find_causes import causes_of, touch
from twofold.batch.ledgers.reconcile_position import ReconcilePosition, splits
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause
from twofold.batch.pending_work import has_taken_in
from twofold.infra.delta.change_feed import changed_rows
from twofold.infra.delta.delta_writer import BEFORE
from twofold.infra.instants import FIRST_US, Interval, epoch_ms, from_epoch_ms
from twofold.infra.process.file_locks import is_held
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION
from twofold.tables.declare.table import Strategy, Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import definition
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.refresh import Refresher
from twofold.tables.refresh.rewound import next_versions, read_by_others
from twofold.tables.refresh.scope import Scope, everything, merged, scope_of_row, scopes_of, whole
from twofold.tables.refresh.scope_expressions import with_scope_values
from twofold.tables.refresh.streaming_checkpoint import GONE, Checkpoint

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Touched:
    """The scopes to recompute, by cause."""

    cause: Cause
    rows: int = 0
    scopes: Sequence[Scope] = ()
    evidence: Sequence[CausingRecord] = ()


@dataclass
class Pinned:
    """One table, pinned to the commits at the start of the work.

    The stream's watermark is read before the versions of the inputs: rows that were closed by then were computed from
    these versions or earlier ones, so the stream cannot be ahead of the pinned inputs.

    Attributes:
        stream: the id of the stream that writes the table.
        watermark_ms: rows that close before it no longer belong to the stream; None: none has closed, or none does.
        is_guess: the watermark is only what a stream would have: none has begun, and nothing else has written all
            closed rows. A stream that begins takes rows that closed before a recorded watermark as written.
        version: of the table itself.
        versions: input -> its version.
    """

    platform: Platform
    table: Table

    def __post_init__(self) -> None:
        lake, table = self.platform.lake, self.table
        self._checkpoint = Checkpoint.of_table(lake.settings, table)
        self.stream = self._checkpoint.stream
        self.sources = self.platform.registry.upstream(table)
        self.watermark_ms, self.is_guess = self._closed_before_ms() if table.closes_at else (None, False)
        self.version = lake.version(table.full_name)
        self._next_versions = next_versions(lake, self.platform.registry, table, self._checkpoint)
        self._is_unbegun = self.is_guess or (not self._next_versions and not lake.rows(table.full_name))
        self.versions = {s.full_name: lake.version(s.full_name) for s in self.sources}
        for name, version in {table.full_name: self.version, **self.versions}.items():
            lake.history(name).keep_while_running(version)
        self._splits = {s.full_name: self._checkpoint.splits.versions_of(s.full_name) for s in self.sources}

    @cached_property
    def ledgers(self) -> Ledgers:
        lake = self.platform.lake
        return Ledgers(lake, self.platform.spark if lake.settings.engine == "spark" else None)

    @property
    def is_open(self) -> bool:
        """Whether no row has closed yet, so that all rows belong to the stream."""
        return bool(self.table.closes_at and self.watermark_ms is None)

    def _closed_before_ms(self) -> tuple[int | None, bool]:
        """Returns the greatest time up to which rows were closed, and whether that is only a guess.

        If neither a stream nor another writer of the table ever closed one, it is the watermark that a stream would
        have after it has read all events.
        """
        lake, name = self.platform.lake, self.table.full_name
        info = lake.newest_info(name, "watermark_ms") or {}
        known = [ms for ms in (self._checkpoint.watermark_ms(), info.get("watermark_ms")) if ms]
        if known or self.stream:
            return max(known, default=None), False
        newest = [read_ingested_offsets(lake, source).newest_ms for source in self.sources if isinstance(source, Topic)]
        times = [ms for ms in newest if ms is not None]
        return (min(times) - self.table.watermark_ms if times and len(times) == len(newest) else None), True

    @cached_property
    def settled(self) -> Mapping[str, int]:
        """Input -> the version up to which the table's stream can no longer undo a replay, at most the pinned one.

        A stream without a watermark that lags may still read an old file with records that a replay has removed since.
        """
        if not self.stream or self.platform.registry.strategy(self.table) not in (Strategy.APPEND, Strategy.LATEST):
            return self.versions
        read = dict(zip(self.versions, self._next_versions, strict=False))
        return {name: min(version, read.get(name, 0) - 1) for name, version in self.versions.items()}

    def before(self) -> ReconcilePosition:
        """Returns the position of the last reconcile.

        If another stream has rewritten the table from the beginning, the position is empty, so that everything is
        checked.
        """
        before = self.ledgers.position(self.table.full_name)
        return before if before.stream == self.stream else ReconcilePosition(stream=self.stream)

    def after(self, pending: Mapping[Scope, int] | None = None, runs: Collection[str] = ()) -> ReconcilePosition:
        """Returns the position of the next reconcile, once all pinned versions were read.

        Args:
            runs: the names of this run; changes that others have published meanwhile are left for the next one.
        """
        name, own = self.table.full_name, self.version
        for commit in self.platform.lake.commits(name, own, self.platform.lake.version(name)):
            if commit.info.get("run", "") not in ("", *runs):
                break
            own = commit.version
        seen = {splits(source): len(versions) for source, versions in self._splits.items() if versions}
        consumed = {**self.settled, name: own, **seen}
        mark = definition(self.table, self.platform.registry)
        return ReconcilePosition(consumed=consumed, stream=self.stream, pending=pending or {}, fingerprint=mark)

    def refresher(self, versions: Mapping[str, int] | None = None) -> Refresher:
        """Returns a refresher that reads these versions of inputs, others as they are now; None: the pinned ones."""
        p = self.platform
        pinned = self.versions if versions is None else versions
        return Refresher(p.spark, p.lake, p.registry, self.table, self.watermark_ms, pinned)

    def wait_for_stream(self) -> None:
        """Waits, within bounds, until the running stream of a table that reads tables has read the pinned versions.

        Changes that the stream is about to make are no corrections. Tables without a running driver are not waited for.
        """
        settings, deadline = self.platform.lake.settings, time.monotonic() + _PATIENCE_S
        if not self.platform.registry.strategy(self.table).follows_changes:
            return
        pinned = [self.versions[s.full_name] for s in self.sources]
        while is_held(settings.driver_lock(self.table.domain)) and time.monotonic() < deadline:
            following = next_versions(self.platform.lake, self.platform.registry, self.table, self._checkpoint)
            if not following and not is_held(settings.stream_lock(self.table.full_name)):
                return
            if all(a > b for a, b in zip(following or [-1], pinned, strict=False)):
                return
            time.sleep(0.2)

    def touched(
        self, before: ReconcilePosition, due: Sequence[Scope] = (), *, with_stream: bool = False
    ) -> Iterator[Touched]:
        """Yields the scopes that new versions of inputs touch, by cause; pending scopes that are due come back as late.

        Args:
            with_stream: also scopes that the stream of a table that follows changes has recomputed itself.
        """
        late, replayed, upstream = Touched("late", scopes=due), Touched("replay"), Touched("upstream")
        lake, before = self.platform.lake, self._rewound(before)
        for source in self.sources:
            after, through = before.consumed.get(source.full_name, -1), self.versions[source.full_name]
            if not with_stream and self._took_in(source, through):
                continue
            columns = [*self.table.scope_reads(source), PARTITION, OFFSET, LATE_BY_MS]
            columns += [c] if (c := source.event_time) else []
            if isinstance(source, Topic):
                drops = self.table.watermark_ms if self.table.closes_at else None
                missed = missed_by_streams(lake, source.full_name, after, through, columns, drops)
                parts = [missed.late, *self._late_in_splits(source, before, columns)]
                late = self._with(late, source, pa.concat_tables(parts), correct=self.table.late == "correct")
                replayed = self._with(replayed, source, missed.replayed)
                # A table that drops late records would otherwise include all that it has dropped.
                if missed.is_cleaned and self.table.late == "correct" and not with_stream:
                    late = replace(late, scopes=merged([*late.scopes, *self._all_of(source)]))
            else:
                try:
                    rows = changed_rows(lake, source.full_name, after, through, columns)
                except FileNotFoundError:  # the changes are unknown, so all of the table may have changed
                    upstream = replace(upstream, rows=lake.rows(source.full_name), scopes=everything(self.table))
                    continue
                upstream = self._with(upstream, source, rows)
                inherited = self._inherited(source, after, through)
                upstream = replace(upstream, evidence=[*upstream.evidence, *inherited])
        yield from (late, replayed, upstream)

    def _rewound(self, before: ReconcilePosition) -> ReconcilePosition:
        """Moves the position back before changes that other writers of the table may have missed."""
        name = self.table.full_name
        if name not in before.consumed:
            return before
        try:
            least = read_by_others(self.platform.lake, name, before.consumed[name], lambda c: "run" not in c.info)
        except FileNotFoundError:
            return ReconcilePosition(stream=self.stream, pending=before.pending)
        return replace(before, consumed={n: min(v, least.get(n, v)) for n, v in before.consumed.items()})

    def in_flight(self, before: ReconcilePosition) -> list[Scope]:
        """Returns scopes whose rows may differ from a recomputation without being wrong.

        These are scopes that a reconcile at the position `before` will check, commits since the pinning, records
        dropped by declaration, and, for a table whose rows never close, the changes that its stream had not read when
        this was pinned. They are all scopes if no stream had read anything and the table had no row.
        """
        if self._is_unbegun:
            return everything(self.table)
        now = Pinned(self.platform, self.table)
        scopes = [*before.pending, *now._scopes_touched(before)]
        if self.table.late == "drop":
            scopes += Pinned(self.platform, replace(self.table, late="correct"))._scopes_touched(
                ReconcilePosition(stream=self.stream)
            )
        if not self.table.closes_at:
            scopes += self._before_stream()
        return merged(scopes)

    def outside(self, rows: pa.Table, scopes: Sequence[Scope]) -> pa.Table:
        """Filters rows of a difference to those in no scope; a row with an end is covered if a scope overlaps it."""
        table = self.table
        by = {*table.recompute_by, *([table.event_time] if table.event_time else [])}
        ends = [c for c in (str(table.ends_at), f"{BEFORE}{table.ends_at}") if c in rows.column_names]
        distinct = rows.select(sorted({*by, *ends})).to_pylist()
        places = [scope_of_row(table, row) for row in distinct]
        if ends:
            last = [max((ms for c in ends if (ms := epoch_ms(row[c])) is not None), default=0) for row in distinct]
            lasting = zip(places, last, strict=True)
            scopes = whole(scopes, ((p.values, p.interval.start, end) for p, end in lasting if p.interval))
        return rows.filter(pa.array([not any(s.covers(place) for s in scopes) for place in places], pa.bool_()))

    def reaches_open(self, scope: Scope) -> bool:
        """Whether rows of the scope may still belong to the stream; they are checked again once they are closed."""
        if self.watermark_ms is None or scope.interval is None:
            return False
        return scope.interval.end + (self.table.depends_within_ms or 0) >= self.watermark_ms

    def closed_at(self, scopes: Sequence[Scope]) -> datetime | None:
        """Returns the watermark after which no row of the scopes belongs to the stream; None if none does now."""
        ends = [s.interval.end for s in scopes if s.interval is not None and self.reaches_open(s)]
        return from_epoch_ms(max(ends) + (self.table.depends_within_ms or 0)) if ends else None

    def _all_of(self, source: Topic) -> list[Scope]:
        """Returns the scopes of all rows that this topic can have produced, open ones included."""
        newest_ms = read_ingested_offsets(self.platform.lake, source).newest_ms
        if newest_ms is None or self.table.depends_within_ms is None:
            return everything(self.table)
        until = Interval(FIRST_US // 1_000, newest_ms + self.table.depends_within_ms + 1)
        return [Scope(scope.values, until) for scope in everything(self.table)]

    def _scopes_touched(self, before: ReconcilePosition) -> Iterator[Scope]:
        for touched in self.touched(before, with_stream=True):
            yield from touched.scopes

    def _before_stream(self) -> Iterator[Scope]:
        lake = self.platform.lake
        for source, following in zip(self.sources, self._next_versions, strict=False):  # none if no stream ran
            name = source.full_name
            columns = [*self.table.scope_reads(source), *([c] if (c := source.event_time) else [])]
            after = min(following - 1, self.versions[name])
            try:
                rows = changed_rows(lake, name, after, lake.version(name), columns)
                yield from scopes_of(self.table, source, self._with_scope_values(source, rows))
            except FileNotFoundError:
                yield from everything(self.table)

    def _took_in(self, source: Topic | Table, version: int) -> bool:
        p = self.platform
        return has_taken_in(p.lake, p.registry, self.table, self._checkpoint, source, version)

    def _inherited(self, source: Table, after: int, through: int) -> Iterator[CausingRecord]:
        """Yields the records behind corrections of a table above, with the rows of this table that they may affect."""
        for correction in self.ledgers.corrections(source.full_name, after, through):
            records = correction["evidence"] or [{"source": source.full_name}]
            sides = [json.loads(correction[side]) for side in ("before", "after") if correction[side]]
            touches = {json.dumps(touch): touch for touch in (touch(self.table, source, row) for row in sides)}
            yield from (CausingRecord(**record, **touch) for touch in touches.values() for record in records)

    def _late_in_splits(self, source: Topic, before: ReconcilePosition, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yields rows that may be late within a commit that the stream read in parts."""
        if self.table.closes_at:
            for version in self._splits[source.full_name][before.consumed.get(splits(source.full_name), 0) :]:
                if version != GONE:
                    yield late_within_commit(
                        self.platform.lake,
                        source.full_name,
                        version,
                        columns,
                        source.event_time,
                        self.table.watermark_ms,
                    )

    def _with(self, touched: Touched, source: Topic | Table, rows: pa.Table, *, correct: bool = True) -> Touched:
        if not len(rows):
            return touched
        rows = self._with_scope_values(source, rows)
        evidence = causes_of(self.table, source, rows) if isinstance(source, Topic) else []
        scopes = scopes_of(self.table, source, rows) if correct else []
        return Touched(
            touched.cause,
            touched.rows + len(rows),
            merged([*touched.scopes, *scopes]),
            [*touched.evidence, *evidence],
        )

    def _with_scope_values(self, source: Topic | Table, rows: pa.Table) -> pa.Table:
        return with_scope_values(self.platform.spark, self.table, source, rows)
