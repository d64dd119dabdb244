"""Which tests a tier has."""

from __future__ import annotations

import pytest

from tests.harness.tiers import TIERS


@pytest.mark.parametrize(
    ("marks", "tiers"),
    [
        ("", "none check test"),
        ("spark", "none test"),
        ("platform spark timeout", "none test"),
        ("prove spark", "none prove"),
        ("worlds", "none check test prove fuzz"),
        ("worlds spark", "none test prove fuzz"),
        ("kills worlds", "none check test prove fuzz chaos"),
        ("prove kills platform", "none prove chaos"),
        ("fuzz spark", "fuzz"),
        ("chaos platform", "chaos"),
    ],
)
def test_marks_say_which_tiers_run_a_test(marks: str, tiers: str) -> None:
    assert " ".join(name or "none" for name, has in TIERS.items() if has(set(marks.split()))) == tiers
