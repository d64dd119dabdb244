"""`search` finds rows of a table by its index, says what it lacks, and prints nothing that a terminal obeys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.conftest import Cli
from tests.cli.test_extras import OF_EXTRAS, run
from tests.cli.test_terminal import HOSTILE, OBEYED
from tests.tables.declared import written
from twofold.cli.writing.new_project import write_project
from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.revealed_places import Place, note_revealed, revealed_places
from twofold.features.search.search_index import Match, SearchIndex
from twofold.infra.delta.lake import Lake
from twofold.infra.extras import EXTRAS
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

POSTS = pa.table({"post_id": ["p1", "p2"], "text": ["A red bicycle", "Bells for bicycles"]})


@pytest.fixture
def indexed(home: Path) -> None:
    """Two posts in a table, and in its index."""
    lake, table = Lake(Settings(home=home)), load().find_table("posts")
    write_deltalake(lake.uri(table.full_name), POSTS)
    [output] = table.outputs
    target = open_target(lake, table, output)
    while step := next_step(lake, table, output, target.position(), target):
        target.send(step.changes, step.before, step.after)


@pytest.mark.usefixtures("indexed")
def test_posts_are_found_by_their_words(cli: Cli) -> None:
    ran = cli("search", "posts", "bicycle", "bells", "--json")
    assert [match["row"] for match in ran.document] == [{"post_id": "p2", "text": "Bells for bicycles"}]
    shown = cli("search", "shop.posts", "bicycles", "--limit", "1")
    assert (shown.code, shown.out.count("icycle")) == (0, 1)
    assert cli("search", "posts", "house").out.strip() == "No row of shop.posts has these words."
    assert "cannot be searched" in cli("search", "posts", '"open').err


@pytest.mark.usefixtures("home")
def test_a_search_without_an_index_says_what_to_declare(cli: Cli) -> None:
    ran = cli("search", "paid_orders", "red")
    assert ran.code != 0
    assert "shop.paid_orders has no output to_search." in ran.err
    assert "outputs=[...]: to_postgres(), to_search(), to_topic(), to_webhook()." in ran.err
    assert "The index shop.posts.posts is not whole yet" in cli("search", "posts", "red").err


def test_a_copy_of_an_output_that_is_not_declared_is_erased(cli: Cli, home: Path) -> None:
    lake, place = Lake(Settings(home=home)), Place("shop.posts", "old", "search", "")
    folder = home / "search" / "shop.posts.old"
    folder.mkdir(parents=True)
    assert (
        "no output that is declared no more has revealed values there" in cli("outputs", "erase", "shop.posts: old").err
    )
    note_revealed(lake, place)
    assert cli("outputs", "erase", "shop.posts: old").out.strip() == "shop.posts: old: nothing is there any more."
    assert revealed_places(lake) == []
    assert not folder.exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_row_says_is_not_obeyed(cli: Cli, monkeypatch: pytest.MonkeyPatch, form: list[str]) -> None:
    def find(*_: object) -> Any:
        return [Match(score=1.0, row={"text": HOSTILE})]

    monkeypatch.setattr(SearchIndex, "find", find)
    ran = cli("search", "posts", "x", *form)
    assert OBEYED & set(ran.out + ran.err) == set()
    assert "\\u001b]52" in ran.out, "the data are shown, harmless"


def test_a_declaration_without_the_extra_is_refused(tmp_path: Path) -> None:
    folder, _ = write_project(tmp_path / "mine")
    declared = (
        '"""Of a search."""\nfrom twofold import table, to_search\n\n@table(outputs=[to_search(text=["shop"])])\n'
    )
    written(folder, {"tables/cafe/found.py": f"{declared}def found(orders):\n    return orders\n"})
    ran = run('from twofold.cli.__main__ import main\nmain(["check", "--quick", "--json"])', folder, OF_EXTRAS)
    [mistake] = json.loads(ran.stdout)
    assert f", for {EXTRAS['search']}, is not installed." in mistake["message"]
