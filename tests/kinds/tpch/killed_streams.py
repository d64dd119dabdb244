"""Lets the streams of TPC-H run in a process of its own, which kills itself between a commit and its note."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.kinds.tpch.tpch_declarations import take_in
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.tables.declare.registry import load
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World


def main(folder: str, commits: str) -> None:
    """Kill this process when the commit of that number is made, and not yet noted."""
    settings, left = Settings.from_environment(), int(commits)
    note = Checkpoint.take

    def note_or_die(checkpoint: Checkpoint, batch: int, versions: list[int]) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        note(checkpoint, batch, versions)

    setattr(Checkpoint, "take", note_or_die)  # noqa: B010
    take_in(World(session(settings, "killed"), settings, "tpch", load(Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
