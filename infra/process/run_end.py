"""Ends what a run of tests or a benchmark has started once the run has ended, also if it was killed.

A supervisor is made to outlive the command that starts it; that of a test is not to outlive the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

from twofold.infra.process.process_reaper import kill_tagged

VARIABLE = "STARTED_BY_RUN"
"""The environment variable with the mark of the run that started a process, directly or not."""
_waiting: list[subprocess.Popen[bytes]] = []


def end_all_with_this_process() -> str:
    """Has everything that this process starts from now on killed when it has ended; returns their mark.

    A process of its own waits at a pipe whose other end is held here alone, so that any end of this one closes it.
    """
    mark = str(uuid.uuid4())
    command = [sys.executable, "-P", "-m", "twofold.infra.process.run_end", mark]
    _waiting.append(subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True))
    os.environ[VARIABLE] = mark
    return mark


if __name__ == "__main__":
    sys.stdin.read()
    kill_tagged(sys.argv[1], VARIABLE)
