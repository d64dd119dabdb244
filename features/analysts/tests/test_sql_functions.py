"""The functions of `twofold sql` for tables of changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.infra.conftest import free_port
from tests.tables.declared import written
from twofold.features.analysts.sql_functions import define_functions
from twofold.features.analysts.sql_query import Analyst
from twofold.features.capture.tests.test_complete_through import FILES, captured
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load


def test_a_query_says_when_the_database_was_not_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, registry = Lake(Settings(home=tmp_path / "home")), load(written(tmp_path, FILES))
    captured(lake, registry, "people", 1, 10, {20: 1, 30: 2})
    captured(lake, registry, "orders", 1, 5, {20: 1, 30: 2})
    nowhere = Lake(replace(lake.settings, connect_port=free_port(), database_port=free_port()))
    analyst = Analyst(nowhere)
    define_functions(analyst, nowhere, lambda: registry)
    assert analyst.rows("SELECT complete_through(['people_now', 'orders_now'])") == [(30,)]
    assert "The database was not asked whether it has lost changes since" in capsys.readouterr().err
