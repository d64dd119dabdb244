"""Nothing that a command under a reaper started outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from tests.infra.conftest import Eventually
from twofold.infra.process.process_reaper import TAGS, ReaperCommand, has_ended, with_tag

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel keeps these promises on Linux only")

SLEEP = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
# Leaves its parent's session and its parent, as a daemon does.
DETACH = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[2]))
"""
TAKES_TERM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""


@contextlib.contextmanager
def under_a_reaper(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    reaper = subprocess.Popen(
        [sys.executable, "-m", "twofold.infra.process.process_reaper", "--", sys.executable, "-c", *command], cwd=ROOT
    )
    try:
        yield reaper
    finally:
        reaper.terminate()
        reaper.wait(timeout=20)


def started(file: Path, eventually: Eventually) -> psutil.Process:
    """The process that wrote its id to this file."""
    eventually(lambda: file.exists() and file.read_text())
    return psutil.Process(int(file.read_text()))


def test_the_exit_code_is_that_of_the_command() -> None:
    with under_a_reaper("raise SystemExit(3)") as reaper:
        assert reaper.wait(timeout=20) == 3


def test_a_command_that_a_signal_ended_gives_128_and_its_number(tmp_path: Path, eventually: Eventually) -> None:
    with under_a_reaper(SLEEP, str(tmp_path / "pid")) as reaper:
        started(tmp_path / "pid", eventually).kill()

        assert reaper.wait(timeout=20) == 128 + signal.SIGKILL


def test_a_command_that_does_not_exist_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "twofold.infra.process.process_reaper", "--", "no-such-command"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 127
    assert "Cannot run no-such-command" in capfd.readouterr().err


def test_term_reaches_the_command_which_may_end_in_its_own_way(tmp_path: Path, eventually: Eventually) -> None:
    with under_a_reaper(TAKES_TERM, str(tmp_path / "pid")) as reaper:
        started(tmp_path / "pid", eventually)
        reaper.terminate()

        assert reaper.wait(timeout=20) == 7


def test_a_reaper_that_is_killed_takes_its_command_with_it(tmp_path: Path, eventually: Eventually) -> None:
    with under_a_reaper(SLEEP, str(tmp_path / "pid")) as reaper:
        command = started(tmp_path / "pid", eventually)
        reaper.kill()

        eventually(lambda: has_ended(command))


def test_a_daemon_that_the_command_left_behind_is_killed(tmp_path: Path, eventually: Eventually) -> None:
    with under_a_reaper(DETACH, str(tmp_path / "pid"), "1") as reaper:
        daemon = started(tmp_path / "pid", eventually)
        reaper.wait(timeout=20)

        assert has_ended(daemon)


def test_the_command_is_stopped_when_the_parent_of_its_reaper_is_killed(tmp_path: Path, eventually: Eventually) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; subprocess.run(sys.argv[1:])",
            *[
                sys.executable,
                "-m",
                "twofold.infra.process.process_reaper",
                "--",
                sys.executable,
                "-c",
                SLEEP,
                str(tmp_path / "pid"),
            ],
        ],
        cwd=ROOT,
    )
    command = started(tmp_path / "pid", eventually)
    parent.kill()
    parent.wait()

    eventually(lambda: has_ended(command))


def test_what_a_killed_reaper_left_is_gone_before_the_command_starts_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    command = ReaperCommand(argv=[sys.executable, "-c", DETACH, str(tmp_path / "pid"), "600"], tag=f"test-{tmp_path}")
    command.save(tmp_path / "command.json")
    run = [sys.executable, "-m", "twofold.infra.process.process_reaper", "--command", str(tmp_path / "command.json")]
    first = subprocess.Popen(run, cwd=ROOT)
    daemon = started(tmp_path / "pid", eventually)
    first.kill()
    first.wait()
    assert not has_ended(daemon)

    second = subprocess.Popen(run, cwd=ROOT)
    try:
        eventually(lambda: has_ended(daemon))
    finally:
        second.terminate()
        second.wait(timeout=20)


def test_a_process_of_another_tag_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"], env=with_tag(os.environ, f"test-{tmp_path}-other"))
    try:
        time.sleep(0.1)
        with under_a_reaper("pass") as reaper:
            reaper.wait(timeout=20)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_tags_add_up_and_none_is_there_twice() -> None:
    once = with_tag({TAGS: "a"}, "b")

    assert once[TAGS] == "a|b"
    assert with_tag(once, "b") == once
