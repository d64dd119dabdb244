"""Runs a command and ends every process that it started.

It is `python -m twofold.infra.process.process_reaper -- command ...`:

    supervisord ── reaper ── command ── its children, and theirs

The command gets its own process group. TERM and INT go on to it. When it ends, every process that it left behind is
killed, also one that detached itself. When the reaper is killed the command dies with it, and when the reaper's parent
dies the reaper stops the command: both are kept by the kernel on Linux. Elsewhere, and for what a killed reaper could
not clean up, every process carries a tag in its environment by which the next reaper or `infra.process.supervisor`
finds it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from twofold.infra.atomic_write import write_atomically

if TYPE_CHECKING:
    import psutil

TAGS = "PROCESS_TAGS"
"""The environment variable with the tags of a process, separated by `|`."""
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_RUN = 127


@dataclass(frozen=True, kw_only=True)
class ReaperCommand:
    """The command that one reaper runs.

    Args:
        argv: the program and its arguments.
        tag: identifies the command's processes among all of this machine; two reapers never share one at a time.
        environment: set on top of the reaper's own.
        pid_file: says, as JSON, which process runs now and how often it was started; none when empty.
        stop_signal: what the command gets when the reaper is terminated.
        stop_wait_s: after that long it is killed.
    """

    argv: Sequence[str]
    tag: str
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "."
    pid_file: str = ""
    stop_signal: str = "TERM"
    stop_wait_s: int = 10

    def save(self, path: Path) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> ReaperCommand:
        return cls(**json.loads(path.read_text()))


def run(command: ReaperCommand) -> int:
    """Runs the command to its end and kills its leftovers; returns its exit code, 128 + n if signal n ended it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    kill_tagged(command.tag)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    executed, executing = os.pipe()
    child = os.fork()
    if child == 0:
        _become(command)
    _forward_signals(command, child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    # The pipe closes when the child has become the command, or has failed to.
    os.close(executing)
    os.read(executed, 1)
    os.close(executed)
    _write_pid_file(command, child)
    code = _reap_until(child)
    # From here on there is nothing to forward, and the cleaning must not be cut short.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    _kill_descendants()
    kill_tagged(command.tag)
    return code


def tagged_processes(tag: str, variable: str = TAGS) -> Iterator[psutil.Process]:
    """Returns the processes that carry this tag in a variable, without this process and those that started it."""
    import psutil

    own = psutil.Process()
    spared = {own.pid, *(parent.pid for parent in own.parents())}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in spared and tag in process.environ().get(variable, "").split("|"):
                yield process


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also when it is not reaped yet."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def with_tag(environment: Mapping[str, str], tag: str) -> dict[str, str]:
    """Returns an environment whose processes also carry this tag."""
    tags = [other for other in environment.get(TAGS, "").split("|") if other and other != tag]
    return {**environment, TAGS: "|".join([*tags, tag])}


def kill_tagged(tag: str, variable: str = TAGS) -> None:
    """Kills every process that carries this tag in a variable, until there is none."""
    import psutil

    while remaining := list(tagged_processes(tag, variable)):
        for process in remaining:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.02)


def _become(command: ReaperCommand) -> NoReturn:
    """Turns this forked process into the command."""
    try:
        os.setpgid(0, 0)
        reaper = os.getppid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            os._exit(CANNOT_RUN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        os.chdir(command.directory)
        environment = with_tag({**os.environ, **command.environment}, command.tag)
        os.execvpe(command.argv[0], list(command.argv), environment)
    except OSError as error:
        print(f"Cannot run {command.argv[0]}: {error}", file=sys.stderr, flush=True)
    os._exit(CANNOT_RUN)


def _forward_signals(command: ReaperCommand, child: int) -> None:
    def forward(number: int, _: FrameType | None) -> None:
        asked = signal.Signals[f"SIG{command.stop_signal}"] if number == signal.SIGTERM else signal.Signals(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, asked)
        signal.alarm(max(command.stop_wait_s, 1))

    def give_up(_: int, __: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, give_up)
    for number in FORWARDED:
        signal.signal(number, forward)


def _reap_until(child: int) -> int:
    """Reaps orphans as they end, until the command itself ends; returns its exit code."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _kill_descendants() -> None:
    import psutil

    while children := psutil.Process().children(recursive=True):
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _write_pid_file(command: ReaperCommand, child: int) -> None:
    if not command.pid_file:
        return
    path = Path(command.pid_file)
    try:
        starts = json.loads(path.read_text())["starts"]
    except (OSError, ValueError, KeyError):
        starts = 0
    write_atomically(path, json.dumps({"pid": child, "starts": starts + 1}))


def prctl(option: int, value: int) -> None:
    """Sets an attribute of this process by prctl(2); does nothing if the kernel is not Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def main(arguments: Sequence[str]) -> int:
    """Runs `--command FILE`, as the supervisor calls it, or `-- command ...`."""
    match list(arguments):
        case ["--command", file]:
            return run(ReaperCommand.load(Path(file)))
        case ["--", _, *_]:
            return run(ReaperCommand(argv=arguments[1:], tag=f"reaper-{uuid.uuid4()}"))
        case _:
            print("Usage: python -m twofold.infra.process.process_reaper -- command [argument ...]", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
