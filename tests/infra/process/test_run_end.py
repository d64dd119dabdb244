"""What a run has started ends with it, also what had detached itself, and however the run ended."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from tests import ROOT
from twofold.infra.process.process_reaper import has_ended

RUN = """
import subprocess, sys
from twofold.infra.process.run_end import end_all_with_this_process
end_all_with_this_process()
detached = "from subprocess import *; print(Popen(['sleep', '600'], start_new_session=True, stdout=DEVNULL).pid)"
subprocess.run([sys.executable, "-c", detached])
sys.stdin.read()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_detached_itself_ends_with_the_run(is_killed: bool) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdin is not None
    assert run.stdout is not None
    left = psutil.Process(int(run.stdout.readline()))
    assert not has_ended(left)
    if is_killed:
        run.kill()
    run.stdin.close()
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 30
    while not has_ended(left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert has_ended(left)
