"""Keeps the processes of one home alive, through supervisord.

Every process of a home carries the home's tag (`infra.process.process_reaper`), so that what a crash left behind is
found again, and so that nothing is ever done to a process of another home.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.process import supervisord
from twofold.infra.process.process_reaper import TAGS, has_ended, kill_tagged, tagged_processes, with_tag
from twofold.infra.process.supervisord import Program
from twofold.infra.project.project import project
from twofold.infra.project.settings import Settings

State = Literal["STOPPED", "STARTING", "RUNNING", "BACKOFF", "STOPPING", "EXITED", "FATAL", "UNKNOWN"]

START_TIMEOUT_S = 60
BAD_NAME, ALREADY_STARTED, NOT_RUNNING = 10, 60, 70  # supervisor.xmlrpc.Faults


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """The state of a supervised process.

    Args:
        pid: of the program itself, not of its reaper; None while it does not run.
        uptime_s: since the present process was started; None while it does not run.
        starts: how often the program was started since the supervisor runs; 1 when it never failed.
        detail: what supervisord says about it, one line.
    """

    name: str
    state: State
    pid: int | None
    uptime_s: float | None
    starts: int
    detail: str


def start(settings: Settings, programs: Sequence[Program]) -> None:
    """Supervises exactly these programs: starts the supervisor if necessary; adds, replaces and removes programs.

    Programs whose definition did not change are left alone if they run. Run twice, it changes nothing.

    Raises:
        ProcessFailed: supervisord does not start; the message holds its log.
    """
    with _only_one(settings):
        supervisord.write_configuration(settings, programs)
        if is_running(settings):
            _apply(settings, programs)
        else:
            _launch(settings)


def stop(settings: Settings) -> None:
    """Stops every program, the highest stage first, then the supervisor; does nothing if none runs."""
    with _only_one(settings):
        if is_running(settings):
            _stop_stages(settings)
            with (
                contextlib.suppress(OSError, http.client.HTTPException, xmlrpc.client.Error),
                supervisord.rpc(settings) as server,
            ):
                server.shutdown()
        _end_leftovers(settings)
        supervisord.remove_socket(settings)


def is_running(settings: Settings) -> bool:
    """Whether the supervisor of this home answers."""
    try:
        with supervisord.rpc(settings) as server:
            return bool(server.getIdentification() == supervisord.process_tag(settings))
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return False


def state(settings: Settings) -> list[ProcessState]:
    """Lists the supervised processes in the order of their stages; empty if the supervisor does not run."""
    try:
        with supervisord.rpc(settings) as server:
            answers = cast("list[dict[str, Any]]", server.getAllProcessInfo())
    # A fault: it is shutting down.
    except (OSError, http.client.HTTPException, xmlrpc.client.Error):
        return []
    return [_state(settings, answer) for answer in answers]


def restart(settings: Settings, name: str) -> None:
    """Stops and starts a program; returns when it runs.

    Raises:
        BadArgument: there is no such program.
        ProcessFailed: the supervisor does not run, or the program ended again at once.
    """
    stop_program(settings, name)
    start_program(settings, name)


def replace(settings: Settings, program: Program) -> None:
    """Restarts a supervised program by its definition of now; all others are left alone. Raises as `restart`."""
    with _only_one(settings):
        supervisord.write_configuration(settings, [program], keeps_others=True)
        is_changed = program.name in _apply(settings, [program])
    if not is_changed:
        stop_program(settings, program.name)
    start_program(settings, program.name)


def start_program(settings: Settings, name: str) -> None:
    """Starts a stopped program; returns when it runs. Raises as `restart`."""
    _ask(settings, name, "startProcess", harmless=ALREADY_STARTED)


def stop_program(settings: Settings, name: str) -> None:
    """Stops a program until `start_program` or `start`; returns when it has ended. Raises as `restart`."""
    _ask(settings, name, "stopProcess", harmless=NOT_RUNNING)


def _apply(settings: Settings, programs: Sequence[Program]) -> list[str]:
    """Makes a running supervisor adopt the configuration that was just written; returns what is new or changed."""
    with supervisord.rpc(settings, timeout_s=120) as server:
        [[added, changed, removed]] = cast("list[list[list[str]]]", server.reloadConfig())
        _stop_together(settings, [*changed, *removed])
        for name in (*changed, *removed):
            server.removeProcessGroup(name)
            supervisord.pid_file(settings, name).unlink(missing_ok=True)
        for name in (*added, *changed):
            server.addProcessGroup(name)
        for program in programs:
            if program.autostart and program.name not in (*added, *changed):
                with contextlib.suppress(xmlrpc.client.Fault):
                    server.startProcess(program.name, False)
    return [*added, *changed]


def _launch(settings: Settings) -> None:
    """Starts supervisord after a removal of all leftovers of a crash in this home."""
    _end_leftovers(settings)
    for pid_file in (supervisord.directory(settings) / "run").iterdir():
        pid_file.unlink()
    supervisord.make_socket_directory(settings)
    environment = {name: value for name, value in os.environ.items() if name != TAGS}
    log = supervisord.directory(settings) / "launch.log"
    with log.open("w") as output:
        launched = subprocess.run(
            [sys.executable, "-m", "supervisor.supervisord", "-c", supervisord.configuration_file(settings)],
            env=with_tag(environment, supervisord.process_tag(settings)),
            cwd=project().folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_running(settings):
        if launched.returncode != 0 or time.monotonic() > deadline:
            raise ProcessFailed(
                f"supervisord does not start: {log.read_text().strip()[-500:] or 'it does not answer'}",
                hint=f"{settings.logs / 'supervisord.log'} may say more.",
            )
        time.sleep(0.05)


def _end_leftovers(settings: Settings) -> None:
    """Ends every process of this home: politely those that supervise, then all that is left."""
    import psutil

    signalled = []
    for process in tagged_processes(supervisord.process_tag(settings)):
        with contextlib.suppress(psutil.Error):
            if {"twofold.infra.process.process_reaper", "supervisor.supervisord"} & set(process.cmdline()):
                process.terminate()
                signalled.append(process)
    waits_s = (command.stop_wait_s for command in supervisord.reaper_commands(settings))
    deadline = time.monotonic() + 5 + max(waits_s, default=0)
    while not all(has_ended(process) for process in signalled) and time.monotonic() < deadline:
        time.sleep(0.05)
    kill_tagged(supervisord.process_tag(settings))


def _stop_stages(settings: Settings) -> None:
    stages = supervisord.stages(settings)
    for stage in sorted(stages, reverse=True):
        _stop_together(settings, stages[stage])


def _stop_together(settings: Settings, names: Sequence[str]) -> None:
    """Signals all of these programs to stop, then waits until the last one has ended."""
    with supervisord.rpc(settings) as server:
        for name in names:
            with contextlib.suppress(xmlrpc.client.Fault):
                server.stopProcess(name, False)
    while any(process.state == "STOPPING" for process in state(settings) if process.name in names):
        time.sleep(0.1)


def _ask(settings: Settings, name: str, method: str, *, harmless: int) -> None:
    try:
        with supervisord.rpc(settings, timeout_s=600) as server:
            getattr(server, method)(name, True)
    except xmlrpc.client.Fault as fault:
        if fault.faultCode == harmless:
            return
        if fault.faultCode == BAD_NAME:
            names = ", ".join(process.name for process in state(settings))
            raise BadArgument(f"No process is called {name!r}.", hint=f"There are: {names}.") from None
        raise ProcessFailed(f"{name}: {fault.faultString}", hint=f"See {settings.logs / f'{name}.log'}.") from None
    except (OSError, http.client.HTTPException) as error:
        raise ProcessFailed(
            f"The supervisor of {settings.home} does not answer.", hint=f"Start the platform with {COMMAND} up."
        ) from error


def _state(settings: Settings, answer: Mapping[str, Any]) -> ProcessState:
    alive = answer["statename"] in ("RUNNING", "STARTING", "STOPPING")
    try:
        running = json.loads(supervisord.pid_file(settings, answer["name"]).read_text())
    except (OSError, ValueError):
        running = {}
    return ProcessState(
        name=answer["name"],
        state=answer["statename"],
        pid=running.get("pid") if alive else None,
        uptime_s=float(answer["now"] - answer["start"]) if alive else None,
        starts=running.get("starts", 0),
        detail=answer["description"] or answer["spawnerr"],
    )


@contextmanager
def _only_one(settings: Settings) -> Iterator[None]:
    supervisord.directory(settings).mkdir(parents=True, exist_ok=True)
    with (supervisord.directory(settings) / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
