"""Runs `twofold` as a child process, and reads what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from twofold.infra.project.settings import Settings

PROGRAM = (sys.executable, "-P", "-m", "twofold")
"""The command line, as another process; files of the working folder take the place of no module."""
_LINES = 12


@dataclass(frozen=True)
class Answer:
    """The end and the output of a command.

    Attributes:
        code: its exit code; None if it took longer than it may, and was ended.
        document: the JSON that it printed; None for none.
        text: the last lines that it printed.
    """

    code: int | None
    document: Any = None
    text: str = ""

    @property
    def fault(self) -> str:
        """Why it failed; empty if it did not, or gave an answer all the same."""
        if isinstance(self.document, dict) and self.code and "error" in self.document:
            return str(self.document["error"])
        if self.document is not None or self.code == 0:
            return ""
        return self.text or f"It ended with the code {self.code}."

    @property
    def hint(self) -> str:
        """The remedy, if the command names one."""
        return str(self.document.get("hint") or "") if self.fault and isinstance(self.document, dict) else ""


def run_command(*words: str, settings: Settings | None = None, limit_s: float | None = None) -> Answer:
    """Runs `twofold WORDS` and waits for its end.

    Args:
        settings: of the command; None: those of the environment of this process.
        limit_s: seconds after which it is ended; None: it may take any time.
    """
    environment = {**os.environ, **settings.environment()} if settings else None
    command = [*PROGRAM, *words]
    try:
        ran = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(None, text=f"It took longer than {limit_s:g} s.")
    printed, complained = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
    document = None
    with suppress(ValueError):
        document = json.loads(printed)
    return Answer(ran.returncode, document, "\n".join((printed + complained).splitlines()[-_LINES:]))
