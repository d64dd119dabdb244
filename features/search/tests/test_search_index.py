"""An index has exactly the rows of its table, and finds them by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.outputs.followed_table import FollowedTable, hour, key_of
from tests.outputs.killed_steps import check_killed_steps, killed_after
from tests.outputs.test_next_step import EVENTS, run_events, small_pages
from twofold.features.search import search_index
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument, SchemaMismatch, TryAgain
from twofold.infra.project.settings import Settings
from twofold.outputs import next_step as reading
from twofold.outputs.refused_rows import Refused

__all__ = ["small_pages"]


@pytest.fixture
def followed(lake: Lake) -> FollowedTable:
    return FollowedTable(lake)


def index_in(home: Path, text: Sequence[str] = ("k",), language: str = "english") -> SearchIndex:
    return SearchIndex(folder=home / "hours", text=text, language=language, note_refused=lambda refused, after: None)


def found(index: SearchIndex, words: str) -> list[str]:
    return sorted(match.row["k"] for match in index.find(words, 10))


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
    with pytest.raises(TryAgain, match="The index hours is not whole yet"):
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


def test_a_row_that_cannot_be_written_is_refused_and_others_are_found(followed: FollowedTable, tmp_path: Path) -> None:
    refused: list[Refused] = []
    index = replace(index_in(tmp_path), note_refused=lambda rows, after: refused.extend(rows))
    followed.put_far("far")
    followed.put(("near", 1, None))
    followed.follow(index)
    assert [row.key for row in refused] == [key_of("far")]
    assert found(index, "far OR near") == ["near"]


WRITES = [(search_index, "write_atomically"), (SearchIndex, "_document")]
"""What a step calls before it writes documents and their position, which are no transaction."""


def test_a_step_that_was_cut_short_is_taken_again(followed: FollowedTable, tmp_path: Path) -> None:
    index = index_in(tmp_path)
    followed.put(("one", 1, None))
    followed.follow(index)
    followed.put(("one", 2, None), ("two", 2, None))
    with killed_after(3, WRITES) as ran:
        followed.step(index)
    assert ran == ["write_atomically", "_document", "_document"]  # but for its position all is there
    assert [found(index, word) for word in ("one", "two")] == [["one"], ["two"]]
    followed.follow(index)
    assert sorted((match.row["k"], match.row["n"]) for match in index.find("one OR two", 10)) == [
        ("one", 2),
        ("two", 2),
    ]


def test_a_row_of_a_killed_step_is_found_no_more_once_its_table_went_back(
    followed: FollowedTable, tmp_path: Path
) -> None:
    assert check_killed_steps(followed, lambda: ReadIndex(**vars(index_in(tmp_path))), WRITES) == 4


def test_an_index_whose_first_step_was_killed_is_not_whole(
    followed: FollowedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it begin again: the pages before are there."""
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    followed.put(*((f"bicycle {n}", n, None) for n in range(30)))
    index = index_in(tmp_path)
    followed.step(index)
    followed.step(index)
    with killed_after(5, WRITES):
        followed.step(index)
    with pytest.raises(TryAgain):
        index.find("bicycle", 100)
    assert len(followed.follow(index)) == 2
    assert len(index.find("bicycle", 100)) == 30


class ReadIndex(SearchIndex):
    """An index that tests read."""

    def rows(self, columns: list[str]) -> list[tuple[Any, ...]]:
        schema = FollowedTable.schema_of(columns)
        return sorted((tuple(row.values()) for row in self.sent(schema, 0, 1).to_pylist()), key=repr)


@pytest.mark.usefixtures("small_pages")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS.filter(lambda event: event[0] != "output" or event[1].columns is None), max_size=10))
def test_an_index_equals_its_table_whatever_happens(events: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as home:
        followed = FollowedTable(Lake(Settings(home=Path(home) / "home")))
        run_events(followed, ReadIndex(**vars(index_in(Path(home)))), events)
