"""`search` finds rows of a table by its index, and says what it lacks; `outputs` names the output it means."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.conftest import Cli
from twofold.features.outputs.next_step import next_step
from twofold.features.outputs.open_target import open_target
from twofold.features.outputs.revealed_places import Place, note_revealed, revealed_places
from twofold.infra.delta.lake import Lake
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


@pytest.mark.usefixtures("home")
def test_an_output_that_is_not_declared_is_named(cli: Cli) -> None:
    ran = cli("outputs", "resend", "paid_orders", "--from", "now", "--output", "paid_order")
    assert "has no output 'paid_order'" in ran.err
    assert "paid_orders" in ran.err


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


def test_a_person_says_that_a_copy_is_gone_which_cannot_be_reached(cli: Cli, home: Path) -> None:
    lake, place = Lake(Settings(home=home)), Place("shop.posts", "old", "postgres", "lost")
    note_revealed(lake, place)
    assert "TWOFOLD_DESTINATIONS" in cli("outputs", "erase", "shop.posts: old").err
    assert revealed_places(lake) == [place]
    assert cli("outputs", "erase", "shop.posts: old", "--gone").code == 0
    assert revealed_places(lake) == []


def test_the_copy_of_a_declared_output_is_not_erased(cli: Cli, home: Path) -> None:
    lake, place = Lake(Settings(home=home)), Place("shop.posts", "posts", "search", "")
    note_revealed(lake, place)
    assert cli("outputs", "erase", "shop.posts: posts").code != 0
    assert revealed_places(lake) == [place]
