"""The operator that runs a command: what each end of it means to Airflow, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests import ROOT
from twofold.infra.errors import BadArgument, ProcessFailed

StandIn = Callable[[str], None]


def operator(**settings: Any) -> Any:
    from airflow.sdk import DAG

    from twofold.dags.operators.command_operator import CommandOperator

    with DAG("flights.reconcile", schedule=None):
        return CommandOperator(**{"task_id": "recompute", "command": "reconcile", **settings})


def execute(task: Any, **context: Any) -> Any:
    """`execute` without Airflow's guard against calls from outside of a task."""
    return type(task).execute.__wrapped__(task, context)


def test_the_last_json_document_on_stdout_is_the_result(stand_in: StandIn) -> None:
    stand_in("import json, sys\nprint('{not json}')\nprint(json.dumps([{'a': [1, {}]}, sys.argv[1:]], indent=2))")
    assert execute(operator(arguments=["flights.flights"])) == [
        {"a": [1, {}]},
        ["reconcile", "flights.flights", "--json"],
    ]


def test_lines_are_logged_while_the_command_runs(tmp_path: Path) -> None:
    from twofold.dags.operators.managed_subprocess import ManagedSubprocess

    script = (
        "import sys, time; print('[1]', flush=True); print('half way', file=sys.stderr, flush=True); time.sleep(1); "
        "print('at the end', file=sys.stderr)"
    )
    child = ManagedSubprocess([sys.executable, "-c", script], environment=os.environ, pid_file=tmp_path / "pid.json")
    seen: dict[str, float] = {}
    ended = child.run(lambda line: seen.update({line: time.monotonic()}))
    assert (ended.code, ended.stdout, ended.stderr) == (0, ["[1]"], ["half way", "at the end"])
    assert list(seen) == ["half way", "at the end"], "the result is data, and no part of the log"
    assert seen["at the end"] - seen["half way"] > 0.8


def test_a_blocked_log_loses_nothing_of_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.dags.operators import managed_subprocess

    monkeypatch.setattr(managed_subprocess, "LOG_WAIT_S", 0.1)
    script = "import json; print(json.dumps({'rows': list(range(5_000))}, indent=1))"
    command = managed_subprocess.ManagedSubprocess(
        [sys.executable, "-c", script], environment=os.environ, pid_file=tmp_path / "pid.json"
    )
    goes_on = threading.Event()
    try:
        assert command.run(lambda _: goes_on.wait() and None).document == {"rows": list(range(5_000))}
    finally:
        goes_on.set()


@pytest.mark.parametrize(
    ("code", "retried"),
    [(75, True), (1, False), (2, False), (3, False)],
    ids=["retryable", "failed", "refused", "other"],
)
def test_only_a_retryable_exit_code_is_tried_again(stand_in: StandIn, code: int, retried: bool) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    error = json.dumps(
        {"error": "The broker is away.", "kind": "X", "hint": "Start it.", "retryable": retried}, indent=2
    )
    stand_in(f"import sys\nprint('''{error}''')\nsys.exit({code})")
    with pytest.raises(AirflowException, match=r"The broker is away\.\nHint: Start it\.") as raised:
        execute(operator())
    assert isinstance(raised.value, AirflowFailException) is not retried


def test_a_command_without_a_message_fails_with_its_last_lines(stand_in: StandIn) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stand_in("raise SystemExit('out of disk')")
    with pytest.raises(AirflowFailException, match="out of disk"):
        execute(operator())


def test_a_command_that_was_killed_is_tried_again(stand_in: StandIn) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    stand_in("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(AirflowException, match="SIGKILL") as raised:
        execute(operator())
    assert not isinstance(raised.value, AirflowFailException)


def test_arguments_that_are_refused_fail_the_task_before_anything_runs(stand_in: StandIn, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stand_in(f"open({str(tmp_path / 'ran')!r}, 'w')")

    def refuse(_: Any) -> list[str]:
        raise BadArgument("No such table.", hint="There are others.")

    with pytest.raises(AirflowFailException, match=r"No such table\.\nHint: There are others\."):
        execute(operator(arguments=refuse))
    assert not (tmp_path / "ran").exists()


def test_the_command_sees_the_settings_but_none_of_airflows_own(
    stand_in: StandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "secret")
    stand_in("import json, os\nprint(json.dumps(dict(os.environ)))")
    seen = execute(operator())
    assert seen["TWOFOLD_HOME"] == str(home)
    assert [name for name in seen if name.startswith("AIRFLOW__")] == []


def fan_out(monkeypatch: pytest.MonkeyPatch, succeed: Callable[..., None]) -> Any:
    """`look` >> `a` >> `b`, of which only `b` has work."""
    from airflow.sdk import DAG, BaseOperator

    from twofold.dags.operators import command_operator

    monkeypatch.setattr(command_operator, "Client", lambda _: SimpleNamespace(succeed=succeed))
    with DAG("flights.reconcile", schedule=None):
        task = command_operator.FanOutOperator(
            task_id="look", command="reconcile", telling=lambda document: {"b", f"of {document}"}, note="Right."
        )
        task >> BaseOperator(task_id="a") >> BaseOperator(task_id="b")
    return task


def test_tasks_without_work_succeed_without_being_started(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("print('[1, 2]')")
    succeeded: list[Any] = []
    task = fan_out(monkeypatch, lambda *of: succeeded.append(of))
    assert execute(task, run_id="r") == [1, 2]
    assert succeeded == [("flights.reconcile", "r", {"a"}, "Right.")]


def test_where_airflow_does_not_answer_tasks_without_work_are_started(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any) -> None:
        raise ProcessFailed("Airflow does not answer.")

    stand_in("print('[1, 2]')")
    assert execute(fan_out(monkeypatch, unreachable), run_id="r") == [1, 2]


SLEEPERS = """
import subprocess, sys, time
children = [subprocess.Popen(["sleep", "300"]), subprocess.Popen(["setsid", "sleep", "300"])]
with open({pids!r} + ".partial", "w") as file:
    file.write(" ".join(str(child.pid) for child in children) + f" {{__import__('os').getpid()}}")
__import__("os").replace({pids!r} + ".partial", {pids!r})
time.sleep(300)
"""

WORKER = """
import signal, sys
from unittest.mock import patch
from airflow.sdk import DAG
from twofold.dags.operators import command_operator as command

command.PROGRAM = (sys.executable, {script!r})
with DAG("flights.reconcile", schedule=None):
    task = command.CommandOperator(task_id="recompute", command="reconcile")
signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
type(task).execute.__wrapped__(task, {{}})
"""


@pytest.fixture
def sleepers(tmp_path: Path) -> tuple[str, Path]:
    """A command that starts two children, one of which detaches itself; the file that tells the ids of all three."""
    script, pids = tmp_path / "sleepers.py", tmp_path / "pids"
    script.write_text(SLEEPERS.format(pids=str(pids)))
    return str(script), pids


def start_worker(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER.format(script=script)], cwd=ROOT, stderr=subprocess.DEVNULL)


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # also one that ends while it is asked
        return False


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_no_process_of_a_task_outlives_its_worker(home: Path, sleepers: tuple[str, Path], end: signal.Signals) -> None:
    script, file = sleepers
    worker = start_worker(script)
    try:
        assert wait_for(file.exists, 60)
        pids = [int(pid) for pid in file.read_text().split()]
        assert len(alive(pids)) == 3
        worker.send_signal(end)
        worker.wait(30)
        assert wait_for(lambda: not alive(pids), 30), alive(pids)
    finally:
        worker.kill()


def test_a_retry_first_ends_what_an_earlier_attempt_left_running(
    home: Path, sleepers: tuple[str, Path], stand_in: StandIn
) -> None:
    script, file = sleepers
    worker = start_worker(script)
    try:
        assert wait_for(file.exists, 60)
        pids = [int(pid) for pid in file.read_text().split()]
        os.kill(worker.pid, signal.SIGSTOP)  # a worker that lost its heartbeat, but whose process is still there
        stand_in(f"import psutil, json\nprint(json.dumps([psutil.pid_exists(pid) for pid in {pids}]))")
        assert execute(operator()) == [False, False, False]
    finally:
        worker.kill()
        worker.wait(30)


def test_another_process_with_a_reused_id_is_left_alone(home: Path, stand_in: StandIn) -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        place = home / "run" / "tasks" / "flights.reconcile.recompute.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"pid": other.pid, "started": 1.0, "mark": "task-of-old"}))
        stand_in("print('{}')")
        try:
            assert execute(operator()) == {}
            assert alive([other.pid]) == [other.pid]
        finally:
            other.kill()
