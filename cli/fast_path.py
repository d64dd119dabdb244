"""Entry point of `twofold`: answers at once if reconcile has nothing to do, else runs the command line.

Loading the command line takes longer than to find in the logs that no record was late.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from twofold.infra.errors import TwofoldError
from twofold.infra.project.settings import Settings


def main() -> None:
    """Runs the command line that was typed."""
    try:
        if not answer(sys.argv[1:]):
            from twofold.cli.__main__ import main as run

            run()
    except KeyboardInterrupt:  # before the command began
        sys.exit(130)


def answer(words: Sequence[str]) -> bool:
    """Prints that `reconcile [TABLE]... [--json]` has nothing to do, if so; returns whether it printed an answer."""
    if words[:1] != ["reconcile"] or any(word.startswith("-") and word != "--json" for word in words):
        return False
    from twofold.batch.pending_work import untouched
    from twofold.tables.declare.registry import running_domains

    try:
        settings = Settings.from_environment()
        names = [word for word in words[1:] if word != "--json"]
        outcomes = untouched(settings, names or running_domains(settings))
    except (TwofoldError, ModuleNotFoundError):
        return False  # the command line prints it
    if outcomes is None:
        return False
    if "--json" in words:
        print(json.dumps([{**dataclasses.asdict(outcome), "changed": 0} for outcome in outcomes], indent=2))
    else:
        print(f"Nothing to do: since the last reconcile no record was late for {len(outcomes)} tables.")
    return True


if __name__ == "__main__":
    main()
