"""Spaces the steps of a driver's queries by what they cost."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

FEW = 4_000
"""Rows that nothing waits for: live traffic that two cores carry brings them in some seconds."""
_SHARE = 0.6
"""The part of the cores that steps take by the clock; a larger one cost more and made little fresher."""
_LATELY_S = 20.0
_LONGEST_S = 6.0


class _Step(NamedTuple):
    took_s: float
    readers: int
    ended_at: float


class Shares:
    """Decides how often each query takes a step, so that all together keep a part of the cores busy.

    A step costs nearly the same whether few rows wait or many. Steps of `c` seconds every `T` seconds keep the sum of
    `c / T` cores busy, and rows wait `T / 2` on average. The sum of these waits is least if each `T` is proportional to
    the square root of `c`. The wait of rows that other queries read counts for each of them.

    Args:
        cores: of the machine.
        clock: seconds, as `time.monotonic` has them.

    Attributes:
        closing: set once no query should rest any more.
    """

    def __init__(self, cores: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._busy_cores, self._clock = cores * _SHARE, clock
        self._steps: dict[str, _Step] = {}
        self._lock = threading.Lock()
        self.closing = threading.Event()

    def every_s(self, name: str, took_s: float, *, readers: int = 1) -> float:
        """Returns the seconds between the starts of two steps of a query, whose last one took so long.

        Args:
            readers: queries whose rows wait for its rows, itself included.
        """
        now = self._clock()
        with self._lock:
            self._steps[name] = _Step(took_s, readers, now)
            active = [step for step in self._steps.values() if now - step.ended_at < _LATELY_S]
        whole = sum(math.sqrt(step.took_s * step.readers) for step in active)
        return min(math.sqrt(took_s / readers) * whole / self._busy_cores, _LONGEST_S)

    def rest(self, name: str, took_s: float, *, readers: int = 1) -> None:
        """Waits, after a step that took so long, until the next one is due. Arguments are those of `every_s`."""
        self.closing.wait(max(0.0, self.every_s(name, took_s, readers=readers) - took_s))
