"""Rows that wait for each table of a driver, counted from the Delta logs."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from twofold.tables.declare.table import Table
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

if TYPE_CHECKING:
    from twofold.infra.delta.lake import Lake
    from twofold.tables.declare.registry import Registry

_REMEMBERED = 4_000  # commits of each table; of older ones the rows count as very many


class _Commit(NamedTuple):
    version: int
    rows: int
    """Rows that it and those before it changed, since the first that was read."""
    seen_at: float


@dataclass
class _Log:
    """The newest commits of one table, oldest first; the first one stands for all before it."""

    commits: deque[_Commit]
    changed_at: float = -math.inf

    @property
    def newest(self) -> _Commit:
        return self.commits[-1]


class Backlog:
    """Reads each commit of the inputs once for all tables.

    Args:
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(self, lake: Lake, registry: Registry, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lake, self._registry, self._clock = lake, registry, clock
        self._logs: dict[str, _Log] = {}
        self._read_to: dict[str, Sequence[int]] = {}
        self._lock = threading.Lock()

    def next_version(self, name: str) -> int:
        """Returns the version that the next commit of a table will have."""
        return self._read(name).newest.version + 1

    def rows(self, name: str, start: int) -> float:
        """Counts the rows that commits from version `start` on have changed; infinite if these commits are unknown."""
        log = self._read(name)
        with self._lock:
            before = next((commit.rows for commit in reversed(log.commits) if commit.version < start), None)
            return math.inf if before is None else log.newest.rows - before

    def arrived(self, name: str, within_s: float) -> int:
        """Counts the rows of a table that changed within these seconds."""
        log, since = self._read(name), self._clock() - within_s
        with self._lock:
            before = next((commit.rows for commit in reversed(log.commits) if commit.seen_at < since), 0)
            return log.newest.rows - before

    def quiet_s(self, name: str) -> float:
        """Returns the seconds since a change of the table's rows was last seen."""
        return self._clock() - self._read(name).changed_at

    def note_read(self, table: Table, versions: Sequence[int]) -> None:
        """Records the next version of each input, sooner than the checkpoint of a query that rests does."""
        self._read_to[table.full_name] = versions

    def before_streams(self, table: Table) -> float:
        """Returns the longest backlog, in rows, of the tables that this one reads, directly or through others."""
        longest = 0.0
        for source in self._registry.upstream(table):
            if isinstance(source, Table):
                inputs = self._registry.upstream(source)
                read = self._read_to.get(source.full_name)
                read = read or Checkpoint.of_table(self._lake.settings, source).next_versions() or [0] * len(inputs)
                waiting = sum(self.rows(topic.full_name, start) for topic, start in zip(inputs, read, strict=True))
                longest = max(longest, waiting, self.before_streams(source))
        return longest

    def _read(self, name: str) -> _Log:
        """Returns a table's log, updated with its new commits."""
        with self._lock:
            log = self._logs.get(name)
            if log is None:
                version = self._lake.version(name)
                log = self._logs[name] = _Log(deque([_Commit(version, 0, -math.inf)], maxlen=_REMEMBERED))
                if version == 0:  # which makes a table, and adds no rows
                    log.commits.appendleft(_Commit(-1, 0, -math.inf))
            while True:
                try:
                    [commit] = self._lake.commits(name, log.newest.version, log.newest.version + 1)
                except FileNotFoundError:
                    return log
                now = self._clock()
                rows = log.newest.rows + commit.rows_changed
                log.commits.append(_Commit(commit.version, rows, now))
                if commit.changes:
                    log.changed_at = now
