"""Keeps work running that can fail: starts it again after a pause, and has its failures noted."""

from __future__ import annotations

import faulthandler
import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from twofold.infra.process.file_locks import exclusive

_LONGEST_PAUSE_S = 60.0
_SETTLED_S = 10.0  # work that runs for so long has recovered from its failure
_log = logging.getLogger("twofold.driver")


def stop_on_signal() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT to this process set.

    SIGUSR1 writes what each of its threads does to its log, and disturbs nothing.
    """
    stop = threading.Event()
    faulthandler.register(signal.SIGUSR1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


class Running(Protocol):
    """The interface of running work: a streaming query, or an object with the same methods."""

    @property
    def name(self) -> str | None: ...

    @property
    def isActive(self) -> bool: ...

    def exception(self) -> Exception | None: ...

    def stop(self) -> None: ...

    def awaitTermination(self) -> object: ...


class Failures(Protocol):
    """The notes about the failures of a piece of work."""

    def known(self) -> str:
        """Returns why it has failed; empty if it runs."""

    def note(self, error: Exception | None) -> None:
        """Notes why it has failed; None: it runs."""


class KeptRunning:
    """Work that is started again after a failure, unless another process holds its lock.

    Args:
        start: starts the work, without waiting for it.
        lock: the file whose lock it holds while it runs; None: none.
    """

    def __init__(self, name: str, start: Callable[[], Running], lock: Path | None, failures: Failures) -> None:
        self._name, self._start, self._lock, self._failures = name, start, lock, failures
        self._held = ExitStack()
        self._running: Running | None = None
        self._pause_s, self._next_try, self._running_since = 1.0, 0.0, 0.0
        self._noted = ""  # the failure that was known when it was started

    def keep(self) -> None:
        """Checks the work, and starts it if it does not run and its pause is over."""
        now = time.monotonic()
        if self._running is not None and self._running.isActive:
            if now - self._running_since > _LONGEST_PAUSE_S:
                self._pause_s = 1.0
            if self._noted and now - self._running_since > _SETTLED_S:
                if self._failures.known() == self._noted:  # no newer failure
                    self._failures.note(None)
                self._noted = ""
            return
        if self._running is not None:
            error = self._running.exception()
            if error is None:  # it ended to be started again
                self._running = None
                self._held.close()
            else:
                self._failed(error)
        if now >= self._next_try and self._is_ours():
            try:
                self._running = self._start()
                self._running_since = now
                self._noted = self._failures.known()
            except Exception as error:
                self._failed(error)

    def stop(self) -> None:
        if self._running is not None and self._running.isActive:
            self._running.stop()
        self._held.close()

    def _is_ours(self) -> bool:
        if self._lock is None or self._held.enter_context(exclusive(self._lock)):
            return True
        self._held.close()
        return False

    def _failed(self, error: Exception) -> None:
        self._running = None
        self._held.close()
        self._next_try = time.monotonic() + self._pause_s
        _log.error("failed name=%s pause_s=%.0f error=%s", self._name, self._pause_s, error)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        self._failures.note(error)
