"""A stream driver of `flights` without its tables: `python -m tests.chaos.ingest_driver`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from tests import ROOT
from twofold.infra.project.settings import Settings
from twofold.streaming.driver import run


class Driver:
    """A driver's process, with the JVM and the workers that it starts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._log = settings.home / "driver.log"
        settings.home.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.ingest_driver"],
                cwd=ROOT,
                env={**os.environ, **settings.environment()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        assert self._process.poll() is None, self._log.read_text()[-3_000:]
        os.killpg(self._process.pid, number)

    def kill_jvm(self) -> None:
        [jvm] = [p for p in psutil.Process(self._process.pid).children(recursive=True) if p.name() == "java"]
        jvm.kill()

    def wait(self, timeout_s: float) -> tuple[int, str]:
        """With what it ended, and what it wrote last."""
        return self._process.wait(timeout_s), self._log.read_text()[-3_000:]

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


if __name__ == "__main__":
    run(Settings.from_environment(), "flights", tables=[])
