"""Topics that cannot be ingested for now and are retried later, so that the others continue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

_SHORTEST_S, _LONGEST_S = 60.0, 900.0
_log = logging.getLogger("twofold.ingest")


@dataclass(frozen=True)
class _Failure:
    error: Exception
    pause_s: float
    until: float


class ExcludedTopics:
    """The topics that failed, with the time of the next try; a pause doubles from a minute to a quarter of an hour.

    A topic that comes back costs the others a restart of their query.

    Args:
        clock: seconds, as `time.monotonic` has them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def add(self, topic: str, error: Exception, *, at_once: bool) -> None:
        """Records that the topic failed.

        Args:
            at_once: leave it out from now on; otherwise only after a second failure.
        """
        before = self._failures.get(topic)
        if before is None and not at_once:
            pause_s = 0.0
        else:
            pause_s = min(max(2 * before.pause_s if before else 0.0, _SHORTEST_S), _LONGEST_S)
            _log.error("left out topic=%s pause_s=%.0f error=%s", topic, pause_s, error)
        self._failures[topic] = _Failure(error, pause_s, self._clock() + pause_s)

    def took(self, topic: str) -> None:
        """Records that the topic succeeded."""
        self._failures.pop(topic, None)

    @property
    def now(self) -> Collection[str]:
        """The topics whose pause is not over."""
        return {topic for topic, failure in self._failures.items() if failure.until > self._clock()}

    @property
    def wait_s(self) -> float | None:
        """Seconds until the first pause is over; None if no topic is left out."""
        now = self._clock()
        return min((f.until - now for f in self._failures.values() if f.until > now), default=None)

    @property
    def message(self) -> str:
        """The reasons why topics are left out, for people; empty if none is."""
        now = self._clock()
        return "; ".join(
            f"{topic} is left out for {failure.until - now:.0f} s, the other topics go on: {failure.error}"
            for topic, failure in sorted(self._failures.items())
            if failure.until > now
        )
