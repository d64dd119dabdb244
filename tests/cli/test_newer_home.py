"""What commands do with a home that a newer platform has laid out: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.infra.project.home_format import FORMAT, format_file

OPENING = (
    "setup",
    "up",
    "down",
    "status",
    "doctor",
    "page",
    "demo",
    "tables",
    "sql SELECT",
    "stream shop",
    "ingest-once shop",
    "reconcile",
    "audit shop.orders",
    "quality",
    "plans",
    "check",
    "outputs",
)


@pytest.mark.parametrize("words", OPENING)
def test_a_newer_home_is_not_touched(words: str, cli: Cli, home: Path) -> None:
    home.mkdir()
    format_file(home).write_text(str(FORMAT + 1))
    ran = cli(*words.split())
    assert ran.code == 2
    assert f"The home {home} has the format {FORMAT + 1}" in ran.err
    assert [path.name for path in home.iterdir()] == ["format"]


def test_settings_of_a_newer_home_are_shown(cli: Cli, home: Path) -> None:
    home.mkdir()
    format_file(home).write_text(str(FORMAT + 1))
    ran = cli("settings", "--json")
    assert (ran.code, ran.document["home"]["value"]) == (0, str(home))
