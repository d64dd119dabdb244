"""Maintains a table from its inputs' change feeds, without a streaming query."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from twofold.infra.delta.change_feed import changed_rows
from twofold.infra.delta.delta_writer import Written
from twofold.infra.encodings.record_format import MARK, OPERATION
from twofold.infra.process.polling_thread import PollingThread
from twofold.infra.rows.sizes import CHANGED, most_rows
from twofold.streaming.maintain.refresh_pace import Pace
from twofold.streaming.maintain.refresh_turns import level_of
from twofold.streaming.maintain.table_stream import TableStream
from twofold.streaming.query.scheduler_pool import use_pool
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import STREAM
from twofold.tables.refresh.events.ingested_offsets import APPENDED_MS
from twofold.tables.refresh.refresh import Refresher
from twofold.tables.refresh.rewound import next_versions
from twofold.tables.refresh.scope import Scope, alike, everything, hull, merged, scopes_of
from twofold.tables.refresh.scope_expressions import with_scope_values
from twofold.tables.refresh.streaming_checkpoint import FeedPosition

if TYPE_CHECKING:
    import pyarrow as pa

_MANY_SCOPES, _MOST = 500, 4  # a list of scopes costs time by its length; a fourth of the rows is most of them
_log = logging.getLogger("twofold.follow")


class ChangeDrivenStream(TableStream):
    """Keeps a table of the strategy `touched` fresh.

    A repeated refresh finds nothing to publish, so only the versions of the inputs that were read must be stored; if
    those are lost, the whole table is recomputed once.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refresher = Refresher(self.spark.newSession(), self.lake, self.registry, self.table)
        self._level = level_of(self.registry, self.table)
        self._starts_at: tuple[int, list[int]] | None = None

    def start(self, *, available_now: bool, pace: Pace | None = None) -> PollingThread:
        """Starts a thread that follows the inputs; with `available_now` it ends once all changes are processed.

        Args:
            pace: when to take a step; None: whenever the inputs have changed.
        """
        self._begin_by_one_definition()
        return PollingThread(self.table.full_name, lambda: self.step(pace), available_now=available_now)

    def step(self, pace: Pace | None) -> bool:
        """Processes the next commits of the inputs; False if there are none, or if the pace waits for more."""
        next_version = self._next_version if pace is None else pace.backlog.next_version
        own, starts = next_version(self.table.full_name) - 1, self._starts(next_version)
        ends = self._ends(starts, next_version)
        if ends == starts or (pace is not None and not pace.is_due(self.table, self._sources)):
            return False
        with nullcontext() if pace is None else self._turn(pace, starts):
            started = time.monotonic()
            if pace is not None:
                use_pool(self.spark, self.table.full_name)
            self._require_one_definition(self._writer.newest())
            ends = self._ends(starts, next_version)  # changes that arrived while others had their turn
            rows_in, scopes = self._touched(starts, ends)
            versions = dict(zip((s.full_name for s in self._sources), ends, strict=True))
            appended_ms = self._appended_ms(versions, is_first=not starts)
            position = self._checkpoint.position
            batch = position.batch + 1 if position else 0
            self._checkpoint.name_stream()
            info = {
                "cause": "stream",
                STREAM: self._checkpoint.stream,
                "batch": batch,
                "versions": versions,
                "watermark_ms": None,
            }
            if appended_ms is not None:
                info[APPENDED_MS] = appended_ms
            written = Written()
            for part in alike(scopes):
                written += self._refresher.publish(part, info, check=False).written
            self.lake.settle(self.table.full_name, written.version)
            self._checkpoint.take(FeedPosition(batch, ends, own))
            self._hold(ends)
            self.lake.history(self.table.full_name).note(f"stream of {self.table.full_name}", own)
            self._starts_at = None
            self._note(batch, rows_in, written, versions, None, started, appended_ms)
        if pace is not None:
            pace.settle(self.table, self._sources, ends, time.monotonic() - started)
        return True

    def _starts(self, next_version: Callable[[str], int]) -> list[int]:
        """Returns the versions to read next; reads them again if the table has new commits."""
        own = next_version(self.table.full_name)
        if self._starts_at is None or self._starts_at[0] != own:
            self._starts_at = own, next_versions(self.lake, self.registry, self.table, self._checkpoint)
        return self._starts_at[1]

    def _ends(self, starts: list[int], next_version: Callable[[str], int]) -> list[int]:
        """Returns the versions at which this step ends; the newest ones if nothing was read yet."""
        versions = [next_version(source.full_name) for source in self._sources]
        at_once = self.lake.settings.max_files
        return [min(end, start + at_once) for start, end in zip(starts, versions, strict=True)] if starts else versions

    def _next_version(self, name: str) -> int:
        return self.lake.version(name) + 1

    def _turn(self, pace: Pace, starts: list[int]) -> AbstractContextManager[None]:
        much = not starts or pace.is_much(self._sources, starts)
        return pace.turns.one(self.table.full_name, level=self._level, much=much)

    def _touched(self, starts: list[int], ends: list[int]) -> tuple[int, list[Scope]]:
        """Returns the number of changed rows, and the scopes that they touch."""
        if not starts:
            rows = sum(self.lake.rows(source.full_name) for source in self._sources)
            return rows, everything(self.table) if rows else []
        try:
            changed = self._rows_changed(starts, ends)
            if changed > most_rows(self.lake.settings, CHANGED):
                _log.warning("all is recomputed for %d changes table=%s from=%s", changed, self.table.full_name, starts)
                return self._touched([], ends)
            changes = list(self._changes(starts, ends))
        except FileNotFoundError:
            _log.warning("changes are gone, all is recomputed table=%s from=%s", self.table.full_name, starts)
            return self._touched([], ends)
        scopes = merged(scope for source, rows in changes for scope in scopes_of(self.table, source, rows))
        rows_in = sum(len(rows) for _, rows in changes)
        return rows_in, self._as_one(scopes, rows_in) if len(scopes) > _MANY_SCOPES else scopes

    def _rows_changed(self, starts: list[int], ends: list[int]) -> int:
        """Counts the changed rows by the Delta logs, without reading data files."""
        spans = zip(self._sources, starts, ends, strict=True)
        commits = (self.lake.commits(source.full_name, start - 1, end - 1) for source, start, end in spans)
        return sum(commit.rows_changed for of_input in commits for commit in of_input if commit.changes)

    def _as_one(self, scopes: list[Scope], rows_in: int) -> list[Scope]:
        """Merges the scopes into one if most of the rows within them have changed."""
        scope = hull(scopes)
        near = self._refresher.input_rows([scope]) if scope else None
        return [scope] if scope and near is not None and rows_in * _MOST >= near else scopes

    def _changes(self, starts: list[int], ends: list[int]) -> Iterator[tuple[Topic | Table, pa.Table]]:
        """Yields for each input its changed rows, old values and new, with event time and the columns of the scope."""
        for source, start, end in zip(self._sources, starts, ends, strict=True):
            at = source.event_time
            is_captured = isinstance(source, Topic) and source.has_marks
            columns = [
                *self.table.scope_reads(source),
                *([at] if at else []),
                OFFSET,
                *([OPERATION] if is_captured else []),
            ]
            table = self._refresher.opened(source.full_name)
            rows = changed_rows(self.lake, source.full_name, start - 1, end - 1, columns, table)
            if isinstance(source, Topic):
                rows = rows.filter(rows[OFFSET].is_valid())  # a heartbeat is no record
            if is_captured:
                rows = rows.filter(pc.not_equal(rows[OPERATION], MARK))
            yield source, with_scope_values(self._refresher.spark, self.table, source, rows)
