"""The prompt of `twofold sql`: what it completes, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.features.analysts.sql_query import Analyst
from twofold.features.analysts.sql_shell import matching, words
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings


def test_the_prompt_completes_tables_columns_and_words_of_sql(lake: Path) -> None:
    analyst = Analyst(Lake(Settings.from_environment()))
    known = words(analyst)
    assert matching("flights.h", known) == ["flights.hours"]
    assert matching("hou", known) == ["hour", "hours"], "a column, a table, words of SQL"
    assert matching("sel", known) == ["select"]
    assert matching("SEL", known) == ["SELECT"]
    assert "delays" not in known, "two domains have one"


def test_the_prompt_explains_itself(cli: Cli, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["help", "tables", "quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    said = cli("sql").out
    assert "Tab completes names of tables and columns" in said
    assert "rail.delays" in said.splitlines()
