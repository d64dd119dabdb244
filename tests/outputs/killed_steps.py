"""Kills a step of an output at each of its writes, after which the table goes back: the step is not repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Protocol

import pytest

from tests.outputs.followed_table import SCHEMA, FollowedTable
from twofold.infra.errors import DatabaseUnreachable
from twofold.outputs.output_target import Target


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


class ReadTarget(Target, Protocol):
    """A copy that tests read."""

    def rows(self, columns: list[str]) -> list[tuple[Any, ...]]: ...


def check_killed_steps(
    followed: FollowedTable, opened: Callable[[], ReadTarget], places: Sequence[tuple[Any, str]]
) -> int:
    """Checks the copy after a kill at each write of a step in turn; returns how many writes the step has.

    Args:
        opened: returns the copy as a process sees it that starts now.
    """
    followed.put(("a", 0, None))
    followed.follow(opened())
    for writes in count():
        back = followed.lake.version(followed.name)
        followed.put(("a", 1, None), ("ghost", 1, None))
        with killed_after(writes, places) as ran:
            followed.follow(opened())
        followed.restore(back)
        copy = opened()
        followed.follow(copy)
        at = copy.position()
        assert at is not None
        assert copy.rows(SCHEMA.names) == followed.expected(at), f"killed after {ran}"
        if len(ran) < writes:  # it ended before it was killed
            break
    return len(ran)
