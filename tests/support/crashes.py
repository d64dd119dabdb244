"""One harness of crashes: ends a life at a point of its work, be it a process, or what a test does in its own.

The platform has no hooks for this: its methods are replaced from outside, in this process only.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests import ROOT

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings

Method = tuple[type, str]

KILLED = 128 + signal.SIGKILL
TIMEOUT_S = 600


def run_until_killed(settings: Settings, module: str, *arguments: str) -> None:
    """Run `python -m module arguments` under a process reaper; nothing that it started is left.

    Raises:
        AssertionError: it ended otherwise than by killing itself; with what it wrote last.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "twofold.infra.process.process_reaper", "--", sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **settings.environment()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    command = " ".join([module, *arguments])
    assert ran.returncode == KILLED, f"{command} did not kill itself: {ran.stdout[-1000:]}{ran.stderr[-3000:]}"


@contextmanager
def watched(
    methods: Iterable[Method],
    *,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
) -> Iterator[None]:
    """Call `before` with the arguments of each call of these methods, then the method, and `after` with what that gave.

    Both get the object first.
    """

    def replacing(owner: type, name: str) -> Callable[..., object]:
        method: Callable[..., Any] = getattr(owner, name)

        def call(self: object, *arguments: object, **named: object) -> object:
            if before:
                before(self, *arguments)
            result = method(self, *arguments, **named)
            if after:
                after(self, result)
            return result

        return call

    with ExitStack() as stack:
        for owner, name in methods:
            stack.enter_context(patch.object(owner, name, replacing(owner, name)))
        yield


def stepped(step: Callable[[], object], methods: Iterable[Method]) -> AbstractContextManager[None]:
    """Call `step` before and after each call of these methods that the block makes."""

    def around(*_: object) -> None:
        step()

    return watched(methods, before=around, after=around)


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
