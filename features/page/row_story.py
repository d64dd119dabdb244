"""Asks `twofold why` for the story of a row, in a process of its own and not for long."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twofold.infra.process.twofold_command import run_command

LIMIT_S = 20.0
_AT_ONCE = threading.BoundedSemaphore(2)


@dataclass(frozen=True)
class Story:
    """The answer of the command.

    Attributes:
        document: its JSON; None if it failed.
        fault: why it failed; empty if it did not.
        hint: what to do then.
    """

    document: Any | None
    fault: str = ""
    hint: str = ""


def ask(name: str, pairs: Sequence[str]) -> Story:
    """Returns the story of a row of a table.

    Args:
        pairs: `column=value` for each column of the key.
    """
    if not _AT_ONCE.acquire(timeout=LIMIT_S):
        return Story(None, "Others ask at the moment.", "Try again, or run the command below.")
    try:
        answer = run_command("why", name, *pairs, "--json", limit_s=LIMIT_S)
    finally:
        _AT_ONCE.release()
    if answer.code is None:
        return Story(None, f"It takes longer than {LIMIT_S:.0f} s.", "Run the command below, which takes its time.")
    if answer.document is None:
        return Story(None, "The command failed.", "Run it to see why.")
    return Story(None, answer.fault, answer.hint) if answer.fault else Story(answer.document)
