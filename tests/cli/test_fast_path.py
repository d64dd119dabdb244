"""The way in answers only what it is certain of; all else is the command line's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import ROOT
from tests.cli.conftest import Cli
from twofold.batch.ledgers.run_result import RunResult
from twofold.cli.fast_path import answer


def idle(*_: object) -> list[RunResult]:
    return [RunResult(table="flights.x", cause="late", run="late-1")]


@pytest.mark.parametrize(
    "words",
    [[], ["status"], ["reconcile", "--verify"], ["reconcile", "--repair"], ["reconcile", "--help"], ["--debug"]],
)
def test_other_commands_and_options_are_left_to_the_command_line(
    home: object, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("twofold.batch.pending_work.untouched", idle)
    assert not answer(words)


@pytest.mark.parametrize("words", [["reconcile"], ["reconcile", "no_such_table"]])
def test_a_platform_that_never_ran_is_left_to_the_command_line(
    home: object, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert not answer(words)
    assert capsys.readouterr().out == ""


def test_nothing_to_do_is_said_in_a_line_or_in_json(
    home: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("twofold.batch.pending_work.untouched", idle)
    assert answer(["reconcile"])
    assert capsys.readouterr().out.startswith("Nothing to do")
    assert answer(["reconcile", "flights.x", "--json"])
    [outcome] = json.loads(capsys.readouterr().out)
    assert (outcome["table"], outcome["changed"]) == ("flights.x", 0)


def test_the_json_has_what_the_command_line_prints(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("twofold.batch.pending_work.untouched", idle)
    monkeypatch.setattr("twofold.batch.reconcile.reconcile", lambda *_, **__: idle())
    assert answer(["reconcile", "--json"])
    at_once = capsys.readouterr().out
    assert json.loads(at_once) == cli("reconcile", "--json").document


def test_a_command_starts_without_reading_declarations() -> None:
    """They, and what they need, take longer than most commands."""
    found = subprocess.run(
        [sys.executable, "-c", "import sys, twofold.cli.__main__; print('twofold.tables' in sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"
