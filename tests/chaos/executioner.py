"""Ends a life from inside at a point that a seed chooses: the process, or what a test does in its own.

The platform has no hooks for this: its functions are replaced from outside, in this process only.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Method = tuple[type, str]


@contextmanager
def stepped(step: Callable[[], object], methods: Iterable[Method]) -> Iterator[None]:
    """Call `step` before and after each call of these methods that the block makes."""

    def watched(owner: type, name: str) -> Callable[..., object]:
        method: Callable[..., Any] = getattr(owner, name)

        def call(*arguments: object, **named: object) -> object:
            step()
            result = method(*arguments, **named)
            step()
            return result

        return call

    with ExitStack() as stack:
        for owner, name in methods:
            stack.enter_context(patch.object(owner, name, watched(owner, name)))
        yield


class Died(Exception):
    """Stands for the end of the process, where a test survives it."""


class Executioner:
    """Kills this process and its JVM somewhat after a step that the seed chooses."""

    def __init__(self, seed: int, steps: int) -> None:
        dice = random.Random(seed)
        self._left, self._delay_s = dice.randrange(steps), dice.choice([0.0, dice.uniform(0, 0.5)])

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            threading.Timer(self._delay_s, self.end).start() if self._delay_s else self.end()

    def end(self) -> None:
        os.killpg(0, signal.SIGKILL)


class Obstructor(Executioner):
    """Lets no step be done from there on, in any thread: what is written by then is what a kill would leave."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, steps)
        self._is_over = threading.Event()

    def step(self) -> None:
        super().step()
        if self._is_over.is_set():
            raise Died

    def end(self) -> None:
        self._is_over.set()

    @contextmanager
    def obstructing(self, methods: Iterable[Method]) -> Iterator[None]:
        """Step with each of these methods; the block may fail once it is obstructed."""
        with stepped(self.step, methods):
            try:
                yield
            except Exception:
                if not self._is_over.is_set():
                    raise
