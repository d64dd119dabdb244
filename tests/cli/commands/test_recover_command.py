"""A recovery is refused while the checkpoint is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from twofold.cli.commands import recover_command
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.settings import Settings


def test_a_stream_that_runs_has_nothing_to_recover(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recover_command, "_PATIENCE_S", 0.0)
    with exclusive(Settings(home=home).stream_lock("flights.delays_by_hour")) as ours:
        assert ours
        ran = cli("recover", "delays_by_hour", "--json")
    assert ran.code == 1
    assert ran.document["error"] == "The stream of flights.delays_by_hour runs, or a recovery of it."
    assert not (home / "lake").exists()


@pytest.mark.parametrize("words", [["delays"], ["delays_by_hour", "--at-most", "-1"]])
def test_a_recovery_that_cannot_be_meant_is_refused(cli: Cli, words: list[str]) -> None:
    assert cli("recover", *words).code == 2
