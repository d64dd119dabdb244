"""`outputs` names the output it means, and erases only what is declared no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.features.outputs.revealed_places import Place, note_revealed, revealed_places
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load


@pytest.mark.usefixtures("home")
def test_an_output_that_is_not_declared_is_named(cli: Cli) -> None:
    ran = cli("outputs", "resend", "paid_orders", "--from", "now", "--output", "paid_order")
    assert "has no output 'paid_order'" in ran.err
    assert "paid_orders" in ran.err


def test_a_person_says_that_a_copy_is_gone_which_cannot_be_reached(cli: Cli, home: Path) -> None:
    lake, place = Lake(Settings(home=home)), Place("shop.posts", "old", "postgres", "lost")
    note_revealed(lake, place)
    assert "TWOFOLD_DESTINATIONS" in cli("outputs", "erase", "shop.posts: old").err
    assert revealed_places(lake) == [place]
    assert cli("outputs", "erase", "shop.posts: old", "--gone").code == 0
    assert revealed_places(lake) == []


def test_the_copy_of_a_declared_output_is_not_erased(cli: Cli, home: Path) -> None:
    lake, table = Lake(Settings(home=home)), load().find_table("paid_orders")
    place = Place.declared(table, table.outputs[0])
    note_revealed(lake, place)
    assert cli("outputs", "erase", str(place)).code != 0
    assert revealed_places(lake) == [place]
