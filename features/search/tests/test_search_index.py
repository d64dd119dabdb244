"""An index has exactly the rows of its table, and finds them by their words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from twofold import to_search
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.tests.followed_table import FollowedTable, hour
from twofold.features.outputs.tests.killed_steps import killed_after
from twofold.features.outputs.tests.targets.target_contract import Kind, TargetContract
from twofold.features.search import search_index
from twofold.features.search.search_index import SearchIndex
from twofold.features.search.tests.moved_index import WRITES, indexed
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, SchemaMismatch, TryAgain
from twofold.infra.project.settings import Settings


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake)


def index_in(home: Path, text: Sequence[str] = ("k",), language: str = "english") -> SearchIndex:
    output = to_search(text=text, language=language)
    return SearchIndex(Lake(Settings(home=home)), Place("plant.hours", "hours", "search", ""), output)


def found(index: SearchIndex, words: str) -> list[str]:
    return sorted(match.row["k"] for match in index.find(words, 10))


class TestContract(TargetContract):
    @pytest.fixture
    def kind(self, lake: Lake) -> Kind:
        return Kind(
            output=to_search(text=["k"]),
            rows=lambda moved, columns: indexed(moved),
            writes=[write for write in WRITES if write[1] != "_document"],
            revealing={"reveal": ["mail"], "text": ["mail", "note"]},
            examples=25,
            folders=lambda: [lake.settings.home / "search"],
        )


POSTS = ["A red bicycle", "bicycles, red ones", "The Café is red", "a bicycle", "nothing"]


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ("red bicycle", ["A red bicycle", "bicycles, red ones"]),
        ('"red bicycle"', ["A red bicycle"]),
        ("RED -bicycle", ["The Café is red"]),
        ("cafe", ["The Café is red"]),
        ("k:bicycling", ["A red bicycle", "a bicycle", "bicycles, red ones"]),
        ("(nothing OR café)", ["The Café is red", "nothing"]),
        ("house", []),
    ],
)
def test_rows_are_found_by_their_words(followed: FollowedTable, tmp_path: Path, words: str, matches: list[str]) -> None:
    followed.put(*((post, n, None) for n, post in enumerate(POSTS)))
    index = index_in(tmp_path)
    followed.follow(index)
    assert found(index, words) == matches


def test_a_match_has_the_row_and_the_best_comes_first(followed: FollowedTable, tmp_path: Path) -> None:
    followed.put(("red red red", 1, hour(1)), ("red and a lot of other words that have no meaning here", 2, None))
    index = index_in(tmp_path)
    followed.follow(index)
    first, second = index.find("red", 10)
    assert first.row == {"k": "red red red", "n": 1, "closes_at": "2026-01-01T01:00:00+00:00"}
    assert first.score > second.score
    assert len(index.find("red", 1)) == 1


def test_an_edited_or_deleted_row_is_found_no_more(followed: FollowedTable, tmp_path: Path) -> None:
    index = index_in(tmp_path)
    followed.put(("one", 1, None), ("two", 1, None))
    followed.follow(index)
    followed.put(("one", 5, None))
    followed.remove("two")
    followed.follow(index)
    assert [match.row["n"] for match in index.find("one OR two", 10)] == [5]


def test_the_index_before_is_searched_until_another_is_whole(
    followed: FollowedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    followed.put(*((f"bicycle {n}", n, None) for n in range(30)))
    before, other = index_in(tmp_path), index_in(tmp_path, language="")
    assert before.place != other.place
    followed.follow(before)
    followed.step(other)
    followed.step(other)
    assert len(other.find("bicycles", 100)) == 30  # by the endings of English
    followed.follow(other)
    assert (other.find("bicycles", 100), len(other.find("bicycle", 100))) == ([], 30)
    assert [place.name for place in other.folder.iterdir() if place.is_dir()] == [other.place.name]


def test_without_a_whole_index_nothing_is_found_yet(followed: FollowedTable, tmp_path: Path) -> None:
    followed.put(("one", 1, None))
    index = index_in(tmp_path)
    with pytest.raises(TryAgain, match=r"The index plant\.hours\.hours is not whole yet"):
        index.find("one", 10)
    followed.step(index)
    with pytest.raises(TryAgain):
        index.find("one", 10)


@pytest.mark.parametrize("words", ['"open', "colour:red", "(red", "k:["])
def test_words_that_are_no_query_are_refused(followed: FollowedTable, tmp_path: Path, words: str) -> None:
    followed.put(("one", 1, None))
    index = index_in(tmp_path)
    followed.follow(index)
    with pytest.raises(BadArgument, match="cannot be searched"):
        index.find(words, 10)


def test_a_text_that_is_no_string_is_refused(followed: FollowedTable, tmp_path: Path) -> None:
    followed.put(("one", 1, None))
    index = index_in(tmp_path, text=["n"])
    with pytest.raises(SchemaMismatch, match="has to be strings: n is none"):
        followed.follow(index)


STEP = [(search_index, "write_atomically"), (SearchIndex, "_document")]
"""What a step calls before it writes documents and their position, which are no transaction."""


def test_an_index_whose_first_step_was_killed_is_not_whole(
    followed: FollowedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it begin again: the pages before are there."""
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    followed.put(*((f"bicycle {n}", n, None) for n in range(30)))
    index = index_in(tmp_path)
    followed.step(index)
    followed.step(index)
    with killed_after(5, STEP):
        followed.step(index)
    with pytest.raises(TryAgain):
        index.find("bicycle", 100)
    assert len(followed.follow(index)) == 2
    assert len(index.find("bicycle", 100)) == 30
