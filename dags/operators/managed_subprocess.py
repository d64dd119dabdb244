"""Runs one command as a subprocess and ends all of its processes in any case."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from twofold.infra.atomic_write import write_atomically
from twofold.infra.process.process_reaper import ReaperCommand, kill_tagged
from twofold.infra.project.project import project

# Airflow kills a task that does not end within 5 s of SIGTERM.
STOP_WAIT_S = 3
LOG_WAIT_S = 30
KEPT_LINES = 20_000

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a command: its exit code, 128 + n if signal n ended it, and the last lines of its output."""

    code: int
    stdout: Sequence[str]
    stderr: Sequence[str]

    @property
    def document(self) -> object:
        """The last JSON document on stdout; None if there is none."""
        for first in reversed(range(len(self.stdout))):
            if self.stdout[first].startswith(("{", "[")):
                with contextlib.suppress(ValueError):
                    return json.loads("\n".join(self.stdout[first:]))
        return None


class ManagedSubprocess:
    """A command that dies with this process, and that never runs twice with one `pid_file`.

    Args:
        pid_file: says which process runs now; in a folder for such files.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], pid_file: Path) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._pid_file = pid_file
        self._reaper: subprocess.Popen[str] | None = None
        self.was_stopped = False

    def run(self, log: Log) -> Ended:
        """Runs the command to its end; each line of its stderr goes to `log` as soon as `log` accepts it.

        Stdout holds only the result, as data for downstream tasks.

        A process that an earlier attempt left running is ended first.
        """
        end_leftover(self._pid_file)
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        command = ReaperCommand(
            argv=self._command, tag=f"task-{uuid.uuid4()}", directory=str(project().folder), stop_wait_s=STOP_WAIT_S
        )
        command_file = self._pid_file.with_suffix(".command")
        command.save(command_file)
        reaper = self._reaper = subprocess.Popen(
            [sys.executable, "-P", "-m", "twofold.infra.process.process_reaper", "--command", str(command_file)],
            cwd=project().folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            _write_pid_file(self._pid_file, reaper.pid, command.tag)
            with _logging(log) as write:
                stdout, stderr = _Lines(reaper.stdout, lambda _: None), _Lines(reaper.stderr, write)
                return Ended(code=reaper.wait(), stdout=stdout.all(), stderr=stderr.all())
        finally:
            end_leftover(self._pid_file)

    def stop(self) -> None:
        """Asks the command to end, so that `run` returns within seconds; safe in a signal handler."""
        self.was_stopped = True
        if self._reaper is not None:
            self._reaper.terminate()


def end_leftover(pid_file: Path) -> None:
    """Ends the process that a PID file names, with all that it started; nothing if there is none."""
    import psutil

    try:
        noted = json.loads(pid_file.read_text())
        pid, started, tag = noted["pid"], noted["started"], noted["tag"]
    except (OSError, ValueError, KeyError):
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        reaper = psutil.Process(pid)
        # A process id is used again; with the same time of its start it is the same process.
        if reaper.create_time() == started:
            reaper.terminate()
            _, alive = psutil.wait_procs([reaper], timeout=STOP_WAIT_S + 2)
            for process in alive:
                process.kill()
    kill_tagged(tag)
    pid_file.unlink(missing_ok=True)


def _write_pid_file(pid_file: Path, pid: int, tag: str) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        noted = {"pid": pid, "started": psutil.Process(pid).create_time(), "tag": tag}
        write_atomically(pid_file, json.dumps(noted))


@contextlib.contextmanager
def _logging(log: Log) -> Iterator[Log]:
    """Wraps a log so that it never blocks its caller: Airflow's own can block for half a minute."""
    waiting: SimpleQueue[str | None] = SimpleQueue()

    def drain() -> None:
        while (line := waiting.get()) is not None:
            log(line)

    writer = threading.Thread(target=drain, daemon=True)
    writer.start()
    try:
        yield waiting.put
    finally:
        waiting.put(None)
        writer.join(LOG_WAIT_S)


class _Lines:
    """Reads a pipe to its end in a thread, so that neither of two pipes fills up."""

    def __init__(self, pipe: IO[str] | None, log: Log) -> None:
        assert pipe is not None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._thread = threading.Thread(target=self._read, args=(pipe, log), daemon=True)
        self._thread.start()

    def _read(self, pipe: IO[str], log: Log) -> None:
        for line in pipe:
            text = line.rstrip()
            self._lines.append(text)
            if text:
                log(text)

    def all(self) -> list[str]:
        """Returns the last lines; the reaper has ended all processes that could still write."""
        self._thread.join(timeout=10)
        return list(self._lines)
