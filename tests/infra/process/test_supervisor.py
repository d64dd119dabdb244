"""Supervised processes live on, whatever is killed, and no home meets another."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.infra.conftest import Eventually
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.process import supervisor, supervisord
from twofold.infra.process.process_reaper import has_ended, tagged_processes
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings

FAILS_TWICE = """
import pathlib, sys, time
tries = pathlib.Path(sys.argv[1])
tries.write_text(tries.read_text() + "x")
if len(tries.read_text()) == 3:
    time.sleep(600)
"""
DETACHES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""
SLEEPER = Program(name="sleeper", command=["sleep", "600"], start_s=0, stop_wait_s=2)


def only(settings: Settings) -> ProcessState:
    [process] = supervisor.state(settings)
    return process


def runs(settings: Settings, *, other_than: int | None = None) -> bool:
    """Whether the one program of this home runs, in another process than that one."""
    processes = supervisor.state(settings)
    return any(p.state == "RUNNING" and p.pid not in (None, other_than) for p in processes)


def supervisor_pid(settings: Settings) -> int:
    return int((settings.home / "supervisor" / "supervisord.pid").read_text())


def test_a_started_program_is_reported_with_its_own_process(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))

    process = only(settings)
    assert process.pid is not None
    assert psutil.Process(process.pid).cmdline() == ["sleep", "600"]
    assert (process.name, process.starts) == ("sleeper", 1)


def test_nothing_is_reported_where_nothing_runs(settings: Settings) -> None:
    assert supervisor.state(settings) == []
    assert not supervisor.is_running(settings)
    supervisor.stop(settings)


def test_a_killed_program_is_started_again(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))
    killed = only(settings).pid
    assert killed
    os.kill(killed, signal.SIGKILL)

    eventually(lambda: runs(settings, other_than=killed))
    assert only(settings).starts == 2


def test_starting_twice_leaves_the_running_program_alone(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))
    before = only(settings).pid

    supervisor.start(settings, [SLEEPER])

    assert only(settings).pid == before


def test_programs_are_replaced_added_and_stopped_as_they_changed(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER, replace(SLEEPER, name="going")])
    eventually(lambda: runs(settings))

    supervisor.start(settings, [replace(SLEEPER, command=["sleep", "601"]), replace(SLEEPER, name="coming")])
    eventually(lambda: all(process.state == "RUNNING" and process.pid for process in supervisor.state(settings)))

    commands = {p.name: psutil.Process(p.pid).cmdline() for p in supervisor.state(settings) if p.pid}
    assert commands == {"sleeper": ["sleep", "601"], "coming": ["sleep", "600"]}


def test_another_version_restarts_what_runs_code_of_ours(
    settings: Settings, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pids() -> dict[str, int | None]:
        return {process.name: process.pid for process in supervisor.state(settings) if process.state == "RUNNING"}

    server = replace(SLEEPER, name="a-server", runs_our_code=False)
    monkeypatch.setattr(supervisord, "version", lambda: "0.1.0")
    supervisor.start(settings, [SLEEPER, server])
    eventually(lambda: all(pids().get(name) for name in ("sleeper", "a-server")))
    before = pids()
    assert supervisord.earlier_versions(settings) == {}

    monkeypatch.setattr(supervisord, "version", lambda: "0.2.0")
    assert supervisord.earlier_versions(settings) == {"sleeper": "0.1.0"}
    supervisor.start(settings, [SLEEPER, server])
    eventually(lambda: pids().get("sleeper") not in (None, before["sleeper"]))
    assert pids()["a-server"] == before["a-server"]
    assert supervisord.earlier_versions(settings) == {}


def test_a_program_that_was_replaced_alone_has_one_version(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(SLEEPER, name="sleeper-2")
    monkeypatch.setattr(supervisord, "version", lambda: "0.1.0")
    supervisord.write_configuration(settings, [SLEEPER, other])
    monkeypatch.setattr(supervisord, "version", lambda: "0.2.0")
    supervisord.write_configuration(settings, [SLEEPER], keeps_others=True)
    assert supervisord.earlier_versions(settings) == {"sleeper-2": "0.1.0"}


def test_one_program_is_replaced_and_the_others_go_on(settings: Settings, eventually: Eventually) -> None:
    def pids() -> dict[str, int | None]:
        return {process.name: process.pid for process in supervisor.state(settings) if process.state == "RUNNING"}

    supervisor.start(settings, [SLEEPER, replace(SLEEPER, name="going")])
    eventually(lambda: all(pids().get(name) for name in ("sleeper", "going")))
    before, other = pids(), replace(SLEEPER, command=["sleep", "601"])
    for _ in range(2):  # the second time it is restarted as it is
        supervisor.replace(settings, other)
        eventually(lambda old=before["sleeper"]: pids().get("sleeper") not in (None, old))
        assert pids()["going"] == before["going"]
        before = pids()
        assert psutil.Process(before["sleeper"]).cmdline() == ["sleep", "601"]

    supervisor.start(settings, [other, replace(SLEEPER, name="going")])
    assert pids() == before


def test_after_the_supervisor_was_killed_no_process_is_left_or_doubled(
    settings: Settings, eventually: Eventually
) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))
    before = psutil.Process(only(settings).pid)
    os.kill(supervisor_pid(settings), signal.SIGKILL)

    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings, other_than=before.pid))

    assert has_ended(before)
    tag = f"{supervisord.process_tag(settings)}#sleeper"
    assert [process.pid for process in tagged_processes(tag)] == [only(settings).pid]


def test_a_daemon_that_outlived_its_supervisor_is_ended_by_the_next(
    settings: Settings, tmp_path: Path, eventually: Eventually
) -> None:
    file = tmp_path / "pid"
    supervisor.start(settings, [replace(SLEEPER, command=[sys.executable, "-c", DETACHES, str(file)])])
    eventually(lambda: file.exists() and file.read_text())
    daemon = psutil.Process(int(file.read_text()))
    for process in (psutil.Process(supervisor_pid(settings)), psutil.Process(only(settings).pid).parent()):
        assert process
        process.kill()

    supervisor.start(settings, [])

    assert has_ended(daemon)


def test_a_supervisor_whose_socket_vanished_is_replaced(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))
    first = psutil.Process(supervisor_pid(settings))
    supervisord.socket_path(settings).unlink()

    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))

    assert supervisor_pid(settings) != first.pid
    assert has_ended(first)


def test_stopping_ends_every_process_of_this_home_and_none_of_another(
    settings: Settings, tmp_path: Path, eventually: Eventually
) -> None:
    other = replace(settings, home=tmp_path / "home2")
    try:
        for each in (settings, other):
            supervisor.start(each, [SLEEPER])
        eventually(lambda: runs(settings) and runs(other))
        bystander = only(other).pid

        supervisor.stop(settings)

        assert list(tagged_processes(supervisord.process_tag(settings))) == []
        assert only(other).pid == bystander
    finally:
        supervisor.stop(other)


def test_a_program_that_fails_to_start_is_tried_again_and_again(settings: Settings, eventually: Eventually) -> None:
    tries = settings.home.parent / "tries"
    tries.touch()

    supervisor.start(settings, [replace(SLEEPER, command=[sys.executable, "-c", FAILS_TWICE, str(tries)], start_s=1)])

    eventually(lambda: tries.read_text() == "xxx" and runs(settings))


def test_environment_and_log_reach_the_program_as_they_are(settings: Settings, eventually: Eventually) -> None:
    odd = "50%, \"quoted\", 'both'; and a\nline"
    say = "import json, os, time; print(json.dumps(os.environ['ODD']), flush=True); time.sleep(600)"
    supervisor.start(
        settings, [replace(SLEEPER, command=[sys.executable, "-c", say], environment={"ODD": odd}, start_s=0)]
    )

    log = settings.logs / "sleeper.log"
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    assert json.loads(log.read_text()) == odd


def test_a_program_can_be_stopped_started_and_restarted_by_name(settings: Settings, eventually: Eventually) -> None:
    supervisor.start(settings, [SLEEPER])
    eventually(lambda: runs(settings))
    first = only(settings).pid

    supervisor.stop_program(settings, "sleeper")
    assert (only(settings).state, only(settings).pid) == ("STOPPED", None)
    supervisor.start_program(settings, "sleeper")
    eventually(lambda: runs(settings, other_than=first))
    second = only(settings).pid
    supervisor.restart(settings, "sleeper")

    eventually(lambda: runs(settings, other_than=second))
    assert only(settings).starts == 3


def test_an_unknown_program_is_refused_with_the_names_there_are(settings: Settings) -> None:
    supervisor.start(settings, [SLEEPER])

    with pytest.raises(BadArgument, match="No process is called 'sleepr'") as refused:
        supervisor.restart(settings, "sleepr")

    assert "sleeper" in str(refused.value.hint)


def test_asking_where_no_supervisor_runs_says_how_to_start_it(settings: Settings) -> None:
    with pytest.raises(ProcessFailed, match="does not answer") as failed:
        supervisor.restart(settings, "sleeper")

    assert "./twofold up" in str(failed.value.hint)


def test_a_home_with_a_long_path_gets_a_private_short_socket(settings: Settings, eventually: Eventually) -> None:
    deep = replace(settings, home=settings.home / ("long-" * 20) / ("path " * 10).strip())
    deep.home.mkdir(parents=True)
    path = supervisord.socket_path(deep)
    assert not supervisor.is_running(deep)
    assert not path.parent.exists(), "a question makes nothing"
    try:
        supervisor.start(deep, [SLEEPER])
        eventually(lambda: runs(deep))

        assert len(str(path)) <= 100
        assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        supervisor.stop(deep)
    assert not path.parent.exists()


def test_secrets_of_a_program_are_readable_by_their_owner_only(settings: Settings) -> None:
    supervisor.start(settings, [SLEEPER])

    assert {file.stat().st_mode & 0o777 for file in (settings.home / "supervisor" / "commands").iterdir()} == {0o600}
