"""Locks between processes of one machine, released by the system when their holder ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def exclusive(file: Path) -> Iterator[bool]:
    """Hold the lock of `file` for the block, made with its folder where missing.

    Yields:
        Whether the lock was free and is now ours; it is never waited for.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        yield _take(held)


def is_held(file: Path) -> bool:
    """Whether a process holds the lock of `file` now."""
    if not file.exists():
        return False
    with file.open("r+") as held:
        return not _take(held)


def _take(held: IO[str]) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
