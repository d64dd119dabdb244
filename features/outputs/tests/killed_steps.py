"""Ends a process before one of the writes of an output's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from twofold.infra.errors import DatabaseUnreachable


class Killed(Exception):
    """The process ends here."""


def dies() -> None:
    raise Killed


@contextmanager
def killed_after(
    writes: int, places: Sequence[tuple[Any, str]], kill: Callable[[], None] = dies
) -> Iterator[list[str]]:
    """Calls `kill` in place of the write after so many; yields those that there were.

    Args:
        places: what has the functions that write, and their names.
    """
    ran: list[str] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def write(*values: Any, **options: Any) -> Any:
            if len(ran) == writes:
                kill()
            ran.append(function.__name__)
            return function(*values, **options)

        return write

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in places:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        with suppress(Killed, DatabaseUnreachable):
            yield ran
