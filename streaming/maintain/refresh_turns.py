"""Limits which tables of a driver are refreshed at the same time, and orders them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from twofold.tables.declare.table import Table

if TYPE_CHECKING:
    from twofold.tables.declare.registry import Registry

_LOOK_S = 0.2
_LEVEL_S = 2.0
_HEAVY = 5  # times the usual duration of other tables' steps


class _Waiting(NamedTuple):
    """A waiting refresh; the least one is next."""

    due: float
    number: int
    large: bool


class Turns:
    """Lets as many small refreshes run at once as there are cores, and large ones in addition.

    While records arrive, one large refresh runs at a time, so that a core is left for small ones; otherwise as many as
    there are cores, so that none is idle.

    Refreshes of inputs go before those of the tables that read them, which then process both changes: one level lower
    in the order of dependency counts as two more seconds of waiting. None waits forever.

    Args:
        is_calm: whether no records arrive.
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(self, cores: int, is_calm: Callable[[], bool], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cores, self._is_calm, self._clock = cores, is_calm, clock
        self._small = self._large = self._number = 0
        self._waiting: list[_Waiting] = []
        self._took_s: dict[str, float] = {}
        self._changed = threading.Condition()

    @contextmanager
    def one(self, name: str, *, level: int, much: bool) -> Iterator[None]:
        """Waits for a turn, and keeps it during the block.

        Args:
            name: the table.
            level: its place in the order of dependency, as `level_of` gives it.
            much: many rows wait for it, or all are recomputed; otherwise it is large if its last step was heavy.
        """
        with self._changed:
            self._number += 1
            own = _Waiting(self._clock() + level * _LEVEL_S, self._number, much or self.is_heavy(name))
            self._waiting.append(own)
            try:
                while not self._is_next(own):
                    self._changed.wait(_LOOK_S)
                self._count(own.large, 1)
            finally:
                self._waiting.remove(own)
                self._changed.notify_all()  # the next one, for which there may be a turn as well
        began = self._clock()
        try:
            yield
        finally:
            with self._changed:
                self._took_s[name] = self._clock() - began
                self._count(own.large, -1)
                self._changed.notify_all()

    def is_heavy(self, name: str) -> bool:
        """Whether the last step of a table took several times as long as usual for the others.

        All steps take long on a busy machine, so none is heavy for that.
        """
        others = [took_s for other, took_s in self._took_s.items() if other != name]
        return bool(others) and self._took_s.get(name, 0.0) > _HEAVY * median(others)

    def _is_next(self, one: _Waiting) -> bool:
        """Whether there is a free turn for it, and it is the first of its size."""
        return self._is_free(one.large) and one == min(w for w in self._waiting if w.large == one.large)

    def _is_free(self, large: bool) -> bool:
        if not large:
            return self._small < self._cores
        return self._large == 0 or (self._large < self._cores and self._is_calm())

    def _count(self, large: bool, by: int) -> None:
        if large:
            self._large += by
        else:
            self._small += by


def level_of(registry: Registry, table: Table) -> int:
    """Returns the number of levels of tables below a table; 0 for one that reads only topics."""
    below = [level_of(registry, source) for source in registry.upstream(table) if isinstance(source, Table)]
    return 1 + max(below) if below else 0
