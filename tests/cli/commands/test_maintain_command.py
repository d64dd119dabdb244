"""`maintain`: what it removes, what a dry run shows of it, in 80 columns, and what it says when a chore fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.batch.chores import home_chores

DAY_S = 86_400


def aged(file: Path, days: float) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x" * 2_000)
    then = time.time() - days * DAY_S
    os.utime(file, (then, then))
    return file


@pytest.fixture
def worn(home: Path, lake: Path) -> list[Path]:
    """Files of a home that nothing needs any more, in places with long names."""
    run = "20261029T021500.123456Z-definition-0f0f0f0f"
    return [
        aged(lake / "_before" / run / "flights.delays_by_hour" / "part-0.parquet", 31),
        aged(lake / "flights" / "hours" / "part-0.parquet", 8),
        aged(home / "checkpoints" / "flights" / "delays_by_hour.0123456789abcdef" / "offsets" / "0", 31),
        aged(home / "logs" / "airflow" / "dag_id=flights.stream" / "run_id=1" / "attempt=1.log", 31),
    ]


def test_a_dry_run_shows_in_80_columns_what_goes_and_what_is_kept(
    cli: Cli, worn: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("twofold.cli.console.out.width", 80, raising=False)
    shown = cli("maintain", "--dry-run")
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    for text in ("delays_by_hour.0123456789abcdef", "flights.hours", "8.0 kB", "in all", "30 days, 5,000 commits"):
        assert text in shown.out
    assert all(file.exists() for file in worn)


def test_it_removes_what_the_dry_run_has_shown_and_then_nothing(cli: Cli, worn: list[Path]) -> None:
    planned = cli("maintain", "--dry-run", "--json").document
    removed = cli("maintain", "--json").document
    assert planned["doomed"] == removed["doomed"]
    assert (len(planned["doomed"]), planned["faults"], removed["floors"]) == (4, [], [])
    assert [floor["table"] for floor in planned["floors"]] == ["flights.delays", "flights.hours", "rail.delays"]
    assert not any(file.exists() for file in worn)
    assert "There is nothing to remove." in cli("maintain").out


def test_a_chore_that_fails_is_named_after_all_others_are_done(
    cli: Cli, worn: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(home_chores, "logs", fails)
    ended = cli("maintain")
    assert ended.code == 1
    assert "fails: the disk is gone" in ended.err
    assert not any(file.exists() for file in worn)
