"""Asks `./twofold why` for the story of a row, in a process of its own and not for long."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.settings import ROOT

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
        command = [str(ROOT / "twofold"), "why", name, *pairs, "--json"]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False)
        document = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return Story(None, f"It takes longer than {LIMIT_S:.0f} s.", "Run the command below, which takes its time.")
    except (OSError, ValueError):
        return Story(None, "The command failed.", "Run it to see why.")
    finally:
        _AT_ONCE.release()
    if "error" in document:
        return Story(None, str(document["error"]), str(document.get("hint") or ""))
    return Story(document)
