"""Locks between processes of one machine, released by the system when their holder ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LOOK_S = 0.1


@contextmanager
def exclusive(file: Path, patience_s: float = 0.0) -> Iterator[bool]:
    """Holds the lock of `file` during the block; creates the file and its folder if missing.

    Args:
        patience_s: seconds to wait for it.

    Yields:
        Whether the lock was free by then and is now ours.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as held:
        ends = time.monotonic() + patience_s
        while not (is_ours := _take(held)) and time.monotonic() < ends:
            time.sleep(_LOOK_S)
        yield is_ours


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
