"""Starts each engine in a process of its own, and knows where it leaves its tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from peers import flink_environment
from peers.domains import domain_of
from peers.engine_process import READY, Drain, Task
from tests import ROOT
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings

OWN, PLAIN, FLINK = "twofold", "plain spark", "flink"


@dataclass(frozen=True)
class Engine:
    """One way from the topics to the tables.

    Attributes:
        module: of this package, which its process runs.
    """

    name: str
    module: str

    def place(self, settings: Settings, home: Path, table: str) -> Path:
        """Where it leaves a table."""
        if self.name == OWN:
            return Path(Lake(replace(settings, home=home)).uri(f"{domain_of(table)}.{table}"))
        return home / table

    def drains(self, settings: Settings, task: Task) -> list[Drain]:
        """What each round of a task took."""
        with self._started(settings, task) as process:
            lines = list(process.stdout or ())
            if process.wait():
                raise RuntimeError(f"{self.name} failed with {process.returncode}")
        return [Drain(**drain) for drain in json.loads(lines[-1])]

    @contextmanager
    def following(self, settings: Settings, task: Task) -> Iterator[psutil.Process]:
        """Its process while it follows the topics; stopped at the end of the block."""
        with self._started(settings, task) as process:
            for line in process.stdout or ():
                if line.strip() == READY:
                    break
            else:
                raise RuntimeError(f"{self.name} failed with {process.wait()}")
            yield psutil.Process(process.pid)

    @contextmanager
    def _started(self, settings: Settings, task: Task) -> Iterator[subprocess.Popen[str]]:
        python, variables = str(sys.executable), {**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)}
        if self.name == FLINK:
            python, variables = str(flink_environment.PYTHON), flink_environment.environment()
        arguments = [python, "-m", f"peers.{self.module}", *task.arguments()]
        process = subprocess.Popen(arguments, env=variables, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(90)


ENGINES = {
    name: Engine(name, module) for name, module in ((OWN, "own_streams"), (PLAIN, "plain_spark"), (FLINK, "flink_sql"))
}
