"""Values as the page shows them: exact where they are of a row, harmless, and not longer than there is room."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from markupsafe import Markup

from twofold.features.page.links import Address
from twofold.features.page.rendering import LONGEST, exact, in_full, legible


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (0.1234567, "0.123457"), (0.25, "0.25"), (1234567.0, "1.23457e+06"), (1_234, "1,234"),
        (True, "yes"), ("2013-01-05T14:00:00+00:00", "2013-01-05T14:00:00"), ("JFK", "JFK"),
    ],
)  # fmt: skip
def test_a_value_of_a_row_is_exact_to_six_digits(value: object, text: str) -> None:
    assert exact(value) == text


def test_a_long_text_is_cut_and_an_address_or_a_text_of_ours_is_not() -> None:
    assert legible("a" * LONGEST) == "a" * LONGEST
    assert legible("a" * 201) == "a" * 199 + "…"
    assert legible(Address("a" * 300)) == in_full("a" * 300) == "a" * 300
    assert legible("x\u202ey") == "x\\u202ey"
    assert isinstance(legible(Markup("<b>")), Markup)
    assert not isinstance(in_full("<b>"), Markup)


def test_numbers_and_times_are_shown_as_the_command_line_shows_them() -> None:
    shown = [legible(value) for value in (1_234_567, 1.25, None, datetime(2013, 1, 5, 12, tzinfo=UTC))]
    assert shown == ["1,234,567", "1.2", "–", "2013-01-05 12:00:00"]
