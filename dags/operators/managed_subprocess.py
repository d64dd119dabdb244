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

from infra.atomic_write import write_atomically
from infra.process.process_reaper import ReaperCommand, kill_tagged
from infra.settings import ROOT

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
    """A command that ends with this process, and never runs twice under one `place`.

    Args:
        place: a file that records the running process; its folder holds only such files.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], place: Path) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._place = place
        self._guard: subprocess.Popen[str] | None = None
        self.was_stopped = False

    def run(self, log: Log) -> Ended:
        """Runs the command to its end; each line of its stderr goes to `log` as soon as `log` accepts it.

        Stdout holds only the result, as data for downstream tasks.

        A process left in this place by an earlier attempt is ended first.
        """
        end_leftover(self._place)
        self._place.parent.mkdir(parents=True, exist_ok=True)
        order = ReaperCommand(
            command=self._command, mark=f"task-{uuid.uuid4()}", directory=str(ROOT), stop_wait_s=STOP_WAIT_S
        )
        order.save(self._place.with_suffix(".order"))
        guard = self._guard = subprocess.Popen(
            [sys.executable, "-m", "infra.process.process_reaper", "--order", str(self._place.with_suffix(".order"))],
            cwd=ROOT,
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
            _take(self._place, guard.pid, order.mark)
            with _logging(log) as write:
                stdout, stderr = _Lines(guard.stdout, lambda _: None), _Lines(guard.stderr, write)
                return Ended(code=guard.wait(), stdout=stdout.all(), stderr=stderr.all())
        finally:
            end_leftover(self._place)

    def stop(self) -> None:
        """Asks the command to end, so that `run` returns within seconds; safe in a signal handler."""
        self.was_stopped = True
        if self._guard is not None:
            self._guard.terminate()


def end_leftover(place: Path) -> None:
    """Ends the process recorded in a place with all of its children; does nothing if there is none."""
    import psutil

    try:
        noted = json.loads(place.read_text())
    except (OSError, ValueError):
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        guard = psutil.Process(noted["pid"])
        # A process id is used again; with the same time of its start it is the same process.
        if guard.create_time() == noted["started"]:
            guard.terminate()
            _, alive = psutil.wait_procs([guard], timeout=STOP_WAIT_S + 2)
            for process in alive:
                process.kill()
    kill_tagged(noted["mark"])
    place.unlink(missing_ok=True)


def _take(place: Path, pid: int, mark: str) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        noted = {"pid": pid, "started": psutil.Process(pid).create_time(), "mark": mark}
        write_atomically(place, json.dumps(noted))


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
        """Returns the last lines; all processes that could still write have ended."""
        self._thread.join(timeout=10)
        return list(self._lines)
