"""A home that a newer platform has laid out is opened by nothing; all others are, with or without a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.infra.errors import BadSetting
from twofold.infra.project.home_format import FORMAT, format_file, keep_format
from twofold.infra.project.settings import Settings


def opened(home: Path) -> Settings:
    return Settings.from_environment({"TWOFOLD_HOME": str(home)})


@pytest.mark.parametrize("text", [None, "1", f"{FORMAT}\n"])
def test_a_home_of_this_format_or_an_earlier_one_is_opened(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        format_file(tmp_path).write_text(text)
    assert opened(tmp_path).home == tmp_path


def test_a_newer_home_is_refused_with_both_numbers_and_what_to_do(tmp_path: Path) -> None:
    format_file(tmp_path).write_text(f"{FORMAT + 1}\n")
    with pytest.raises(BadSetting) as refused:
        opened(tmp_path)
    for said in (f"has the format {FORMAT + 1}", f"knows formats up to {FORMAT}", "pip install -U twofold"):
        assert said in str(refused.value)


def test_a_format_that_is_no_number_is_refused(tmp_path: Path) -> None:
    format_file(tmp_path).write_text("one")
    with pytest.raises(BadSetting, match="says 'one': expected a whole number"):
        opened(tmp_path)


def test_a_home_gets_its_number_when_it_is_made_and_keeps_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep_format(home)
    assert format_file(home).read_text() == f"{FORMAT}\n"
    format_file(home).write_text("0\n")
    keep_format(home)
    assert format_file(home).read_text() == "0\n"
