"""Decides whether a table is refreshed at once or waits for a larger batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twofold.streaming.maintain.backlog import Backlog
from twofold.streaming.maintain.refresh_turns import Turns
from twofold.streaming.query.step_shares import FEW, Shares

if TYPE_CHECKING:
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic

_MANY = 25_000  # rows that are worth a micro-batch, whatever else comes
_LATELY_S, _QUIET_S = 3.0, 1.0
_PATIENCE_S = 20.0  # a table whose inputs never come to rest is refreshed all the same
_PAUSE_S, _LOOK_S = 3.0, 0.25


@dataclass
class Pace:
    """The pace of one table.

    A step has a high fixed cost and a low cost per row. While inputs fill fast, one step for many rows leaves the
    processor to streams with a backlog; live traffic is too slow to wait for longer than the table's share says.

    Attributes:
        backlog, turns, shares: common to the tables of a driver.
    """

    backlog: Backlog
    turns: Turns
    shares: Shares
    _waits_since: float | None = field(default=None, init=False)

    def is_due(self, table: Table, sources: Sequence[Topic | Table]) -> bool:
        """Whether a refresh should start now, rather than wait for a stream upstream or for arriving records."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        is_filling = self.backlog.before_streams(table) > FEW or self._are_filling(sources)
        if is_filling and now - self._waits_since < _PATIENCE_S:
            return False
        self._waits_since = None
        return True

    def settle(self, table: Table, sources: Sequence[Topic | Table], versions: Sequence[int], took_s: float) -> None:
        """Waits, after a step that read up to these versions, until the next one is worth its cost."""
        self.backlog.note_read(table, versions)
        ended = time.monotonic()
        every_s = self.shares.every_s(table.full_name, took_s)
        if table.freshness_ms is not None:
            every_s = min(every_s, table.freshness_ms / 2_000)
        due = ended - took_s + every_s
        while (wait_s := max(due, ended + _PAUSE_S * self._are_filling(sources)) - time.monotonic()) > 0:
            if self._rows(sources, versions) >= _MANY or self.shares.closing.wait(min(wait_s, _LOOK_S)):
                return

    def is_much(self, sources: Sequence[Topic | Table], versions: Sequence[int]) -> bool:
        """Whether the commits from these versions on have changed more than a few rows."""
        return self._rows(sources, versions) > FEW

    def _rows(self, sources: Sequence[Topic | Table], versions: Sequence[int]) -> float:
        return sum(self.backlog.rows(s.full_name, version) for s, version in zip(sources, versions, strict=True))

    def _are_filling(self, sources: Sequence[Topic | Table]) -> bool:
        backlog, names = self.backlog, [source.full_name for source in sources]
        return any(backlog.arrived(name, _LATELY_S) > FEW and backlog.quiet_s(name) < _QUIET_S for name in names)
