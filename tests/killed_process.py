"""Runs a module of the tests in a process of its own until it kills itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from infra.settings import ROOT

if TYPE_CHECKING:
    from infra.settings import Settings

KILLED = 128 + signal.SIGKILL
TIMEOUT_S = 600


def run_until_killed(settings: Settings, module: str, *arguments: str) -> None:
    """Run `python -m module arguments` under a guard; nothing that it started is left.

    Raises:
        AssertionError: it ended otherwise than by killing itself; with what it wrote last.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "infra.process.process_reaper", "--", sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **settings.environment()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    command = " ".join([module, *arguments])
    assert ran.returncode == KILLED, f"{command} did not kill itself: {ran.stdout[-1000:]}{ran.stderr[-3000:]}"
