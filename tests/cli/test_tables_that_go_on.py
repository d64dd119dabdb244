"""`check`, `up`, `status` and `doctor` name a live table that only a new rule refuses, and what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.tables.refresh.test_live_tables import SAYS, filled, plant
from twofold.cli.platform_start import _starting
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry
from twofold.tables.declare.registry import Registry


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    found = plant(tmp_path / "tables")
    monkeypatch.setattr(registry, "load", lambda **_: found)
    return found


@pytest.mark.parametrize("is_live", [True, False])
def test_check_warns_of_a_live_table_and_refuses_a_new_one(
    cli: Cli, home: Path, declared: Registry, is_live: bool
) -> None:
    if is_live:
        filled(Lake(Settings(home=home)), declared)
    ran = cli("check", "--quick")
    assert [f"! {sentence}" in ran.out for sentence in SAYS.values()] == [is_live, is_live]
    assert ("3 tables without a mistake" in ran.out, "2 mistakes" in ran.out) == (is_live, not is_live)
    assert (ran.code, cli("check", "plant.first", "--quick").code) == ((0, 0) if is_live else (2, 2))


@pytest.mark.parametrize("is_live", [True, False])
def test_what_goes_on_is_named_and_what_is_refused_is_a_fault(
    cli: Cli, home: Path, declared: Registry, capsys: pytest.CaptureFixture[str], is_live: bool
) -> None:
    settings = Settings(home=home)
    if is_live:
        filled(Lake(settings), declared)
    symptoms = cli("doctor", "--json").document["symptoms"]
    assert [one["text"] for one in symptoms if one["severity"] == "failed"] == (
        [] if is_live else [fault.message for fault in declared.unproved.values()]
    )
    assert {one["text"] for one in symptoms} >= set(SAYS.values() if is_live else ())
    with _starting(settings, [], without=["airflow", "spark"]) as (_, starting):
        assert list(starting.tables) == list(declared.tables)
    out = capsys.readouterr().out
    assert [f"! {sentence}" in out for sentence in SAYS.values()] == [is_live, is_live]
    assert ("It is left out; all else runs." in out) != is_live
