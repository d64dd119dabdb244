"""Waits for servers that are starting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from twofold.infra.errors import TwofoldError

T = TypeVar("T")


def until_answered(
    ask: Callable[[], T], unreachable: type[TwofoldError], timeout_s: float, *, every_s: float = 0.2
) -> T:
    """Calls `ask` until it does not raise `unreachable`, and returns its answer.

    Raises:
        TwofoldError: that of the last try, after `timeout_s`; any other error of `ask` at once.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except unreachable:
            if time.monotonic() > deadline:
                raise
        time.sleep(every_s)
