"""What people read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.screen import shown, shown_span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.44, "0.4 s"),
        (9.97, "10.0 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (3_599.8, "1 h 00 min"),
        (200, "3 min 20 s"),
        (7_500, "2 h 05 min"),
        (345_600, "4 days"),
    ],
)
def test_a_span_is_written_in_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert shown_span(seconds) == text


def test_values_are_written_for_people() -> None:
    assert shown(None) == "–"
    assert shown(True) == "yes"
    assert shown(1_234_567) == "1,234,567"
    assert shown(datetime(2013, 1, 1, 10, tzinfo=UTC)) == "2013-01-01 10:00:00"
