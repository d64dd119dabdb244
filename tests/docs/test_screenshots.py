"""The pictures of the README: they are there, small, of one size, and named with a text."""

from __future__ import annotations

import re

import pytest

from docs.screenshots import FOLDER, HEIGHT, MOST_BYTES, PICTURES, WIDTH
from tests import ROOT

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_the_readme_shows_each_picture_of_the_page(name: str) -> None:
    picture = (FOLDER / name).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (WIDTH, HEIGHT)
    assert 10_000 < len(picture) <= MOST_BYTES
    [text] = re.findall(rf"!\[([^\]]+)\]\({FOLDER.relative_to(ROOT)}/{name}\)", README)
    assert len(text) > 20, "for those who do not see it"


def test_there_is_no_other_picture() -> None:
    assert {file.name for file in FOLDER.iterdir()} == set(PICTURES)
