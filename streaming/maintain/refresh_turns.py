"""Limits which tables of a driver are refreshed at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_S = 0.2


class Turns:
    """Lets as many small refreshes run at once as there are cores, and large ones in addition.

    While records arrive it is one large refresh at a time, so that a core is left to what is small; else as many as
    there are cores, so that none is idle.

    Args:
        is_calm: whether no records arrive.
    """

    def __init__(self, cores: int, is_calm: Callable[[], bool]) -> None:
        self._cores, self._is_calm = cores, is_calm
        self._small = self._large = 0
        self._changed = threading.Condition()

    @contextmanager
    def one(self, *, large: bool) -> Iterator[None]:
        """Wait for a turn, and keep it for the block."""
        with self._changed:
            while not self._is_free(large):
                self._changed.wait(_LOOK_S)
            self._count(large, 1)
        try:
            yield
        finally:
            with self._changed:
                self._count(large, -1)
                self._changed.notify_all()

    def _is_free(self, large: bool) -> bool:
        if not large:
            return self._small < self._cores
        return self._large == 0 or (self._large < self._cores and self._is_calm())

    def _count(self, large: bool, by: int) -> None:
        if large:
            self._large += by
        else:
            self._small += by
