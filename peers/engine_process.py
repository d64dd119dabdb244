"""Arguments and reports of an engine's process; runs in every engine's environment: no import of the platform."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

TABLES = ("delays_by_hour", "busiest_routes", "flights")
NEXMARK = (
    "q1_currency",
    "q2_selection",
    "q3_local_items",
    "q7_highest_bids",
    "q11_user_sessions",
    "q14_calculation",
    "q17_auction_days",
    "q20_expanded_bids",
)
"""The queries of Nexmark that every engine can answer by rows that it only adds, or replaces until they close."""
READY = "ready"


@dataclass(frozen=True, kw_only=True)
class Drain:
    """One drain: seconds of the wall clock, and of the CPU of the engine's processes."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an engine's process does.

    Attributes:
        tables: to fill, in one go.
        home: directory of all that it writes.
        rounds: drains, each from nothing; 0: follow the topics until asked to stop.
    """

    tables: Sequence[str]
    home: Path
    bootstrap: str
    rounds: int

    @classmethod
    def from_arguments(cls) -> Task:
        parser = argparse.ArgumentParser()
        parser.add_argument("--tables", nargs="+", choices=[*TABLES, *NEXMARK], required=True)
        parser.add_argument("--home", type=Path, required=True)
        parser.add_argument("--bootstrap", required=True)
        parser.add_argument("--rounds", type=int, required=True)
        return cls(**vars(parser.parse_args()))

    def arguments(self) -> list[str]:
        places = ["--home", str(self.home), "--bootstrap", self.bootstrap, "--rounds", str(self.rounds)]
        return ["--tables", *self.tables, *places]


def cpu_s(root: psutil.Process | None = None) -> float:
    """Seconds of CPU of a process, this one unless named, its descendants, and those that have ended."""
    root = root or psutil.Process()
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def drain(task: Task, fill: Callable[[], object], *, prepare: Callable[[], object] = lambda: None) -> None:
    """Measure `fill` round by round and report; the last round's tables stay.

    Args:
        prepare: makes what a platform that runs has already; not measured.
    """
    drains = []
    for number in range(task.rounds):
        if number:
            shutil.rmtree(task.home)
        task.home.mkdir(parents=True, exist_ok=True)
        prepare()
        began, cpu = time.monotonic(), cpu_s()
        fill()
        drains.append(Drain(seconds=time.monotonic() - began, cpu_s=cpu_s() - cpu))
    print(json.dumps([asdict(drain) for drain in drains]), flush=True)


def until_stopped(goes_on: Callable[[], bool]) -> None:
    """Report that the engine follows the topics, and wait for SIGTERM; ends with 1 when the engine fails before."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print(READY, flush=True)
    while not stop.wait(0.5):
        if not goes_on():
            sys.exit(1)
