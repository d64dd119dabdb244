"""Starts a query after a prerequisite; both are supervised as one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.infra.process.kept_running import Running

_log = logging.getLogger("twofold.fill")


class DeferredQuery:
    """Runs in a thread of its own, so that a fill of hours blocks no other query.

    Args:
        first: the prerequisite; gets a function that returns whether it should end early.
        start: starts the query; not called if `first` failed or was stopped.
    """

    def __init__(self, name: str, first: Callable[[Callable[[], bool]], None], start: Callable[[], Running]) -> None:
        self.name = name
        self._first, self._start = first, start
        self._stop = threading.Event()
        self._query: Running | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"fill {name}", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether the prerequisite or the query runs."""
        return self._thread.is_alive() or (self._query is not None and self._query.isActive)

    def exception(self) -> Exception | None:
        """Returns the error with which it failed, or None."""
        return self._query.exception() if self._query is not None else self._error

    def stop(self) -> None:
        """Stops it after the current chunk or micro-batch."""
        self._stop.set()
        self._thread.join()
        if self._query is not None:
            self._query.stop()

    def awaitTermination(self) -> None:
        """Waits until it ends; raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._query is not None:
            self._query.awaitTermination()

    def _run(self) -> None:
        try:
            self._first(self._stop.is_set)
            if not self._stop.is_set():
                self._query = self._start()
        except Exception as error:
            _log.exception("filling failed query=%s", self.name)
            self._error = error
