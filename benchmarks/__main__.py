"""Runs every benchmark, each in a process of its own; exits with 1 when a claim fails."""

from __future__ import annotations

import subprocess
import sys

from infra.settings import ROOT

BENCHMARKS = (
    *(
        "drain",
        "freshness",
        "catch_up",
        "commands",
        "bookkeeping",
        "reconcile",
        "ledgers",
        "revisions",
        "kinds",
        "decoding",
        "archive",
    ),
    "beside",
)


def main() -> int:
    """One after the other: they measure time on the same cores."""
    failed = [
        name
        for name in BENCHMARKS
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, check=False).returncode
    ]
    if failed:
        print(f"\nClaims fail in: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
