"""A command that is run as a child answers with its JSON, says why it failed, or is ended when its time is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from twofold.infra.process import twofold_command
from twofold.infra.process.twofold_command import Answer, run_command
from twofold.infra.project.settings import Settings

SCRIPT = """#!/bin/sh
case "$1" in
  good) echo '{"home": "'"$TWOFOLD_HOME"'", "words": "'"$*"'"}';;
  found) echo '{"rows": 3}'; exit 1;;
  wrong) echo '{"error": "no such table", "hint": "list them"}'; exit 2;;
  text) echo done;;
  broken) echo half; echo 'Traceback' >&2; exit 1;;
  silent) exit 3;;
  slow) sleep 20;;
esac
"""


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "twofold"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setattr(twofold_command, "PROGRAM", (str(script),))


def test_an_answer_is_what_the_command_prints_with_its_settings(tmp_path: Path) -> None:
    answer = run_command("good", "a b", "--json", settings=Settings(home=tmp_path / "other"))
    assert answer.document == {"home": str(tmp_path / "other"), "words": "good a b --json"}
    assert (answer.code, answer.fault, answer.hint) == (0, "", "")


@pytest.mark.parametrize(
    ("word", "code", "fault", "hint"),
    [
        ("found", 1, "", ""),
        ("wrong", 2, "no such table", "list them"),
        ("text", 0, "", ""),
        ("broken", 1, "half\nTraceback", ""),
        ("silent", 3, "It ended with the code 3.", ""),
    ],
)
def test_a_command_that_fails_says_why(word: str, code: int, fault: str, hint: str) -> None:
    answer = run_command(word)
    assert (answer.code, answer.fault, answer.hint) == (code, fault, hint)


def test_a_command_whose_time_is_up_is_ended() -> None:
    assert run_command("slow", limit_s=0.2) == Answer(None, text="It took longer than 0.2 s.")
    assert run_command("slow", limit_s=0.2).fault == "It took longer than 0.2 s."
