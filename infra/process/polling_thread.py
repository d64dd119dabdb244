"""Work that a thread takes step by step, with the interface of a streaming query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_IDLE_S = 0.1
_log = logging.getLogger("twofold.follow")


class PollingThread:
    """A thread that takes steps until it is stopped, or one fails.

    Args:
        step: takes the next step; False if there is nothing to do.
        available_now: it ends when there is nothing left to do.
        idle_s: how long it waits when there is nothing to do.
    """

    def __init__(
        self, name: str, step: Callable[[], bool], *, available_now: bool = False, idle_s: float = _IDLE_S
    ) -> None:
        self.name = name
        self._step, self._available_now, self._idle_s = step, available_now, idle_s
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> Exception | None:
        """Returns the error with which it failed, or None."""
        return self._error

    def stop(self) -> None:
        """Stops it after the current step."""
        self._stop.set()
        self._thread.join()

    def awaitTermination(self) -> None:
        """Waits until it ends; raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._step():
                    if self._available_now:
                        return
                    self._stop.wait(self._idle_s)
        except Exception as error:
            _log.exception("following failed name=%s", self.name)
            self._error = error
