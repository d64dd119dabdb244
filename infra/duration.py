"""Durations as text: `2 hours`, `90 seconds`."""

from __future__ import annotations

from twofold.infra.errors import BadDeclaration
from twofold_algebra.sql.interval_text import PART as _PART
from twofold_algebra.sql.interval_text import UNITS_MS as _UNITS_MS


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
