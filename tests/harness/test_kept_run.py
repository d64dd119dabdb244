"""What a run may take, by the run that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.harness.kept_run import Run, as_text, excess_of_starts, judged, kept, loop_s

RUN = Run(
    day="2026-11-28",
    minutes=14.5,
    loop_s=0.25,
    loops=1_000,
    started={"JVMs": 8, "brokers": 4},
    cpu_s={"broker": 50.5},
    files={"tests/test_a.py": {"seconds": 3.0, "cpu_s": 1.0}, "others": {"seconds": 9.0, "cpu_s": 8.0}},
)


@pytest.mark.parametrize(
    ("loops", "may_be", "said"),
    [
        (1_000, True, "kept 1000 (1.00 x)"),
        (1_150, True, "kept 1000 (1.15 x)"),
        (1_160, False, "FAILED: CPU seconds of all processes / those of the loop: 1160, kept 1000 (1.16 x)"),
        (860, True, "Hint: keep it"),
    ],
)
def test_a_run_may_take_fifteen_percent_more_cpu_than_is_kept(loops: int, may_be: bool, said: str) -> None:
    text, is_allowed = judged(RUN, replace(RUN, loops=loops))
    assert (is_allowed, said in text) == (may_be, True), text


def test_a_run_may_start_one_server_more_of_each_kind_than_is_kept() -> None:
    assert excess_of_starts(RUN.started, {"JVMs": 9, "brokers": 5}) == []
    assert excess_of_starts(RUN.started, {"JVMs": 10, "brokers": 4}) == ["10 JVMs instead of 9"]


def test_a_run_is_kept_with_a_line_for_each_file_and_read_again() -> None:
    text = as_text(RUN)
    assert Run(**json.loads(text)) == RUN
    assert '  "tests/test_a.py": { "seconds": 3.0, "cpu_s": 1.0 },' in text.splitlines()


def test_the_kept_run_has_what_later_runs_are_held_by() -> None:
    run = kept()
    assert run.started.keys() == {"JVMs", "brokers", "Airflows", "PostgreSQLs"}
    assert run.loops == pytest.approx(sum(run.cpu_s.values()) / run.loop_s, rel=0.01)


def test_a_command_that_fails_before_its_tests_keeps_its_exit_code() -> None:
    script = "from tests.harness import kept_run; from pathlib import Path; kept_run.MADE = Path('/nowhere')"
    code = f"{script}; raise SystemExit(kept_run.main(['sh', '-c', 'exit 3']))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3


def test_the_loop_takes_cpu() -> None:
    assert 0.02 < loop_s() < 60
