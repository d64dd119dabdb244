"""Counts the servers that a run of a tier starts, and the CPU seconds of all its processes, by looking each second."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT
from tests.harness import kept_run
from twofold.infra.process.run_end import VARIABLE, end_all_with_this_process

KINDS = ("JVMs", "brokers", "Airflows", "PostgreSQLs")
HELPERS = {"Main", "StorageTool", ""}
"""JVMs of a second: Spark's launcher, the format of a broker's disk, `java -version`."""
EVERY_S = 1.0
SETTLED_S = 10.0  # by then a process has become the program that it was started for
TESTS = "tests"
"""The part of every process that no supervisor runs, servers left out."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Seen:
    """A process as the kernel describes it.

    Attributes:
        began_s: since the machine started.
        own_s: CPU seconds.
        reaped_s: CPU seconds of those children, and of theirs, that it has waited for.
    """

    pid: int
    parent: int
    began_s: float
    own_s: float = 0.0
    reaped_s: float = 0.0

    @property
    def key(self) -> tuple[int, float]:
        """Differs from that of a later process with the same pid."""
        return self.pid, self.began_s


Key = tuple[int, float]


class StartedProcesses:
    """What a process and its descendants are, ended ones included."""

    def __init__(self, pid: int, is_marked: Callable[[int], bool], command_of: Callable[[int], Sequence[str]]) -> None:
        self._pid, self._is_marked, self._command_of = pid, is_marked, command_of
        self._ours: dict[Key, Seen] = {}
        self._others: set[Key] = set()
        self._parents: dict[Key, Key | None] = {}
        self._kinds: dict[Key, tuple[str, str]] = {}
        self._part: dict[Key, str] = {}
        self._running: set[Key] = set()

    def look(self, seen: Iterable[Seen], now_s: float) -> None:
        """Take note of all processes of the machine; one whose parent has ended is known by its environment."""
        in_order = sorted(seen, key=lambda one: (one.began_s, one.pid))
        keys = {one.pid: one.key for one in in_order}
        self._running = set(keys.values())
        for one in in_order:
            parent = keys.get(one.parent)
            if one.key in self._others or not (one.key in self._ours or self._is_ours(one, parent)):
                self._others.add(one.key)
                continue
            self._ours[one.key], self._parents[one.key] = one, parent
            if now_s - one.began_s < SETTLED_S:
                self._name(one, parent)

    def _name(self, one: Seen, parent: Key | None) -> None:
        command = self._command_of(one.pid)
        kind = kind_of(command)
        # A server's forks have its command until they name themselves.
        if kind and one.key not in self._kinds and (parent is None or self._kinds.get(parent) != kind):
            self._kinds[one.key] = kind
        above = self._part.get(parent, TESTS) if parent else TESTS
        self._part[one.key] = part_of(command) or (kind[1] if kind and above == TESTS else above)

    def _is_ours(self, one: Seen, parent: Key | None) -> bool:
        return one.pid == self._pid or parent in self._ours or self._is_marked(one.pid)

    @property
    def starts(self) -> Counter[str]:
        """How often each kind of server was started."""
        return Counter(kind for kind, _ in self._kinds.values())

    @property
    def programs(self) -> Counter[str]:
        """How often each program of a JVM was started, brokers left out."""
        return Counter(program for kind, program in self._kinds.values() if kind == "JVMs")

    @property
    def cpu_s(self) -> Counter[str]:
        """Part of the platform -> CPU seconds of its processes, and of those that came and went between two looks."""
        known, total = Counter[Key | None](), Counter[str]()
        for key, one in sorted(self._ours.items(), key=lambda item: -item[1].began_s):  # children before their parents
            # Of a family that ends between two looks, the parent was never seen to have waited for its children.
            reaped_s = max(one.reaped_s, known[key])
            if key not in self._running:
                known[self._parents[key]] += one.own_s + reaped_s  # type: ignore[assignment]
            total[self._part.get(key, TESTS)] += one.own_s + reaped_s - known[key]  # type: ignore[assignment]
        return total


def kind_of(command: Sequence[str]) -> tuple[str, str] | None:
    """The kind of server that a command starts, and its program; None for everything else."""
    program = Path(command[0]).name if command else ""
    if program == "java":
        names = (re.fullmatch(r"[a-z]\w*(?:\.\w+)*\.([A-Z]\w*)", word) for word in command[1:])
        main = next((name[1] for name in names if name), "")
        return None if main in HELPERS else ("brokers" if main == "Kafka" else "JVMs", main)
    if program == "postgres" and command[1:2] == ["-D"]:
        return "PostgreSQLs", program
    return ("Airflows", "airflow") if list(command[1:4]) == ["-m", "airflow", "dag-processor"] else None


def part_of(command: Sequence[str]) -> str:
    """The name of the supervised program that a process reaper runs; "" of every other command."""
    if "twofold.infra.process.process_reaper" not in command or "--command" not in command:
        return ""
    return Path(command[-1] or command[-2]).stem.rpartition("-")[0]


def processes() -> Iterator[Seen]:
    """All processes of this machine; none where it has no /proc."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of a program, in parentheses, may have spaces; fields are counted from what follows it.
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
            user, system, of_children, system_of_children, began = (
                int(fields[number]) * _TICK_S for number in (11, 12, 13, 14, 19)
            )
            yield Seen(int(file.parent.name), int(fields[1]), began, user + system, of_children + system_of_children)


def _parts(pid: int, name: str) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace").split("\0")
    return []


def _up_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    mark = end_all_with_this_process()
    if config.option.tier and Path("/proc/uptime").exists():
        config.pluginmanager.register(Sampler(config.option.tier, mark))


class Sampler:
    """Looks at the processes of this run until it ends, and says what it has seen."""

    def __init__(self, tier: str, mark: str) -> None:
        self._tier, mark = tier, f"{VARIABLE}={mark}"
        self._found = StartedProcesses(
            os.getpid(), lambda pid: mark in _parts(pid, "environ"), lambda pid: _parts(pid, "cmdline")
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_until_ended, name="looks at processes", daemon=True)
        self._thread.start()

    def _look_until_ended(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._found.look(processes(), _up_s())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._ended.set()
        self._thread.join()
        self._found.look(processes(), _up_s())
        if self._tier == "test" and self._excess and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        file = ROOT / ".twofold" / "durations" / f"{self._tier}-processes.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        cpu_s = {part: round(seconds, 1) for part, seconds in self._found.cpu_s.most_common()}
        file.write_text(json.dumps({"started": self._starts, "cpu_s": cpu_s}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("processes")
        for line in self._lines():
            terminalreporter.line(line)

    @property
    def _starts(self) -> dict[str, int]:
        return {kind: self._found.starts[kind] for kind in KINDS}

    @property
    def _excess(self) -> list[str]:
        return kept_run.excess_of_starts(kept_run.kept().started, self._starts)

    def _lines(self) -> Iterator[str]:
        cpu_s, programs = self._found.cpu_s, self._found.programs
        yield f"CPU seconds of all processes, servers too: {cpu_s.total():.0f}"
        yield "of them: " + ", ".join(f"{seconds:.0f} {part}" for part, seconds in cpu_s.most_common(12))
        yield "started: " + ", ".join(f"{count} {kind}" for kind, count in self._starts.items())
        if programs:
            yield "programs of JVMs: " + ", ".join(f"{count} {name}" for name, count in programs.most_common())
        if self._tier == "test" and self._excess:
            yield f"FAILED: more servers were started than {kept_run.FILE.name} allows: {'; '.join(self._excess)}"
