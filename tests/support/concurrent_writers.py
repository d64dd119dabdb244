"""Writers that go on in threads of their own while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def writing(*writers: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Runs these until the block ends; each is given the event that says so, and returns once it is set."""
    stopped = threading.Event()
    threads = [threading.Thread(target=writer, args=(stopped,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield stopped
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
