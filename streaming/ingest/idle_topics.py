"""Advances the watermark of an idle topic with the other topics of its domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEATS_PER_PAUSE = 10
"""How often an idle topic is moved within the pause after which it counts as idle."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The time position of a topic; times are epoch milliseconds.

    Attributes:
        idle_timeout_ms: the pause after which it is idle; None: never.
        newest_ms: its greatest event time; None if it has none.
        appended_ms: the append time of its newest record; if there is none, the time since which it waits for one.
        moved_ms: when it was last moved, by the same clock; None: not since the last record.
    """

    idle_timeout_ms: int | None
    newest_ms: int | None
    appended_ms: int
    moved_ms: int | None = None


def due(pulses: Mapping[str, Heartbeat]) -> dict[str, int]:
    """Returns the idle topics with the event time to which each should be moved now, in epoch milliseconds.

    "Now" is the newest append of any topic, so that the result depends only on the log and not on the time of reading.
    An idle topic follows the slowest active topic; if all are idle, no watermark moves.
    """
    now_ms = max((pulse.appended_ms for pulse in pulses.values()), default=0)
    idle = {}
    for name, pulse in pulses.items():
        pause_ms = pulse.idle_timeout_ms
        if pause_ms is None or now_ms - pulse.appended_ms < pause_ms:
            continue
        if pulse.moved_ms is not None and (now_ms - pulse.moved_ms) * BEATS_PER_PAUSE < pause_ms:
            continue
        awake = [
            other.newest_ms
            for other_name, other in pulses.items()
            if other_name != name and other.newest_ms is not None and now_ms - other.appended_ms < pause_ms
        ]
        target_ms = min(awake, default=None)
        if target_ms is not None and (pulse.newest_ms is None or target_ms > pulse.newest_ms):
            idle[name] = target_ms
    return idle
