"""An index that reveals is searched without what is forgotten, becomes whole, and only its owner reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.personal_search import found_in
from twofold import to_search
from twofold.features.outputs import next_step as reading
from twofold.features.outputs.follow.output_state import StateFile
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.tests.revealed_table import RevealedTable, mail_of
from twofold.features.search import search_index
from twofold.features.search.search_index import SearchIndex
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import TryAgain


@pytest.fixture
def people(lake: Lake) -> RevealedTable:
    return RevealedTable(lake)


def test_an_index_behind_an_end_is_searched_without_what_it_reveals(people: RevealedTable) -> None:
    people.output = to_search(text=["mail", "note"], reveal=["mail"])
    people.put("ann", "bob")
    index = open_target(people.lake, people.table, people.output)
    assert isinstance(index, SearchIndex)
    people.follow(index)
    people.forget("ann")
    assert index.find(mail_of("ann"), 10) == index.find(mail_of("bob"), 10) == []
    assert [match.row["k"] for match in index.find("note ann", 10)] == ["ann"]
    assert "mail" not in index.find("note ann", 10)[0].row
    with pytest.raises(TryAgain, match="mail cannot be searched now"):
        index.find(f"mail : {mail_of('ann')}", 10)
    people.follow(index)
    assert index.find(mail_of("ann"), 10) == []
    assert [match.row["mail"] for match in index.find(f"mail:{mail_of('bob')}", 10)] == [mail_of("bob")]


def test_an_index_becomes_whole_though_one_is_forgotten_at_each_step(
    people: RevealedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_ROWS", 5)
    people.output = to_search(text=["mail"], reveal=["mail"])
    names = [f"person{number}" for number in range(20)]
    people.put(*names)
    index = open_target(people.lake, people.table, people.output)
    assert isinstance(index, SearchIndex)
    whole: set[Path] = set()
    for name in names[:12]:
        people.forget(name)
        for _ in range(2):
            people.step(index)
            places = [place for place in index.folder.iterdir() if place.is_dir()]
            whole |= {place for place in places if (at := search_index._position(place)) and not at.heading}
    assert len(whole) >= 3
    people.follow(index)
    assert found_in([index.folder], [mail_of(name) for name in names[:12]]) == {}
    assert {row["k"]: row["mail"] for row in index._stored()} == people.without(*names[:12])
    assert len([place for place in index.folder.iterdir() if place.is_dir()]) == 1


def test_no_other_user_reads_what_an_output_keeps_in_the_home(people: RevealedTable) -> None:
    people.output = to_search(text=["mail"], reveal=["mail"])
    people.put("ann")
    index = open_target(people.lake, people.table, people.output)
    assert isinstance(index, SearchIndex)
    search, outputs = index.folder.parent, people.lake.settings.home / "outputs"
    for folder in (index.folder, outputs):  # as homes from before have them
        folder.mkdir(parents=True)
    people.follow(index)
    StateFile(people.lake.settings, people.name, "hours").note_position(index.position())
    assert [folder.stat().st_mode & 0o777 for folder in (search, index.folder, outputs)] == [0o700] * 3
