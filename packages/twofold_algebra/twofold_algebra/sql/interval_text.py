"""Lengths of time as text: `2 hours`, `90 seconds`."""

from __future__ import annotations

import re

UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
PART = re.compile(r"\s*(\d+)\s+(millisecond|second|minute|hour|day)s?\s*", re.IGNORECASE)


def milliseconds_of(text: str) -> int | None:
    """Parses a length such as `"2 hours"` or `"1 day 12 hours"`; None: it is none, or it has months or years."""
    total, position = 0, 0
    while part := PART.match(text, position):
        total += int(part[1]) * UNITS_MS[part[2].lower()]
        position = part.end()
    return total if text.strip() and position == len(text) else None
