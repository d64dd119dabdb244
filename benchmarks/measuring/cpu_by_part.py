"""Seconds of CPU of a platform by the part of its work."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.measuring.benchmark_platform import broker_process, cpu_s
from twofold.infra.project.settings import Settings

PARTS = {
    "C1 CompilerThre": "compiler C1",
    "C2 CompilerThre": "compiler C2",
    "Executor task": "tasks",
    "G1": "garbage collection",
    "GC Thread": "garbage collection",
    "VM Thread": "garbage collection",
    "stream executio": "planning of queries with state",
    "Thread-": "planning of refreshes",
    "serve-Arrow": "serving Arrow",
    "dispatcher": "scheduling",
    "dag-scheduler": "scheduling",
    "task-result-get": "scheduling",
}
"""The first letters of a JVM thread's name -> the part of the work that it does."""


class Accountant:
    """Counts the CPU of a driver: its Python, its JVM by thread, and the Python workers of the JVM."""

    def __init__(self, settings: Settings) -> None:
        self._seen: dict[tuple[int, int], tuple[str, float]] = {}
        self._stop = threading.Event()
        self._broker = broker_process(settings)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Accountant:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def now(self) -> Counter[str]:
        """Part -> seconds of CPU so far; of threads that have ended, those that were seen."""
        self._look()
        found: Counter[str] = Counter({"broker": cpu_s(self._broker)})
        for part, seconds in list(self._seen.values()):
            found[part] += seconds  # type: ignore[assignment]
        return found

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def _look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                words = process.cmdline()
                if "java" in words[0] and any("pyspark-shell" in word for word in words):
                    self._look_at_threads(process.pid)
                elif "pyspark.daemon" in words:
                    self._seen[process.pid, 0] = "Python workers", cpu_s(process)
                elif "stream" in words and "cli" in words:
                    self._seen[process.pid, 0] = "Python of the driver", cpu_s(process)
            except (psutil.Error, IndexError):
                continue

    def _look_at_threads(self, pid: int) -> None:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                name, numbers = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue
            ticks = [int(number) for number in numbers.split()[11:13]]
            part = next((p for start, p in PARTS.items() if name.startswith(start)), "other threads of the JVM")
            self._seen[pid, int(task.name)] = part, sum(ticks) / os.sysconf("SC_CLK_TCK")
