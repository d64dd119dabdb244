"""Durations as text: `2 hours`, `90 seconds`."""

from __future__ import annotations

import re

from twofold.infra.errors import BadDeclaration

_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_PART = re.compile(r"\s*(\d+)\s+(millisecond|second|minute|hour|day)s?\s*", re.IGNORECASE)


def parse_duration(text: str, what: str) -> int:
    """Parses a duration such as `"2 hours"` or `"1 day 12 hours"` to milliseconds.

    Args:
        what: the parameter that holds the text, for the error.

    Raises:
        BadDeclaration: the text is no duration. Months and years have no fixed length and are refused.
    """
    total, position = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            break
        total += int(part[1]) * _UNITS_MS[part[2].lower()]
        position = part.end()
    if not text.strip() or position != len(text):
        raise BadDeclaration(
            f"{what}={text!r}: expected a length of time.",
            hint="Write for example '90 seconds', '2 hours' or '1 day 12 hours'.",
        )
    return total
