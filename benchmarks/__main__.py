"""Runs every benchmark, each in a process of its own; exits with 1 when a claim fails."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measuring.figures import keep
from tests import ROOT

BENCHMARKS = {
    "drain": "ingest_throughput",
    "capture": "capture_throughput",
    "persons": "personal_topics",
    "freshness": "stream_freshness",
    "catch_up": "catch_up_time",
    "commands": "command_latency",
    "bookkeeping": "microbatch_overhead",
    "reconcile": "refresh.reconcile_time",
    "ledgers": "ledger_growth",
    "disk": "table_growth",
    "revisions": "refresh.revision_time",
    "timelines": "refresh.timeline_refresh",
    "searches": "refresh.search_speed",
    "kinds": "stateful_throughput",
    "decoding": "decoding",
    "dags": "dag_parsing",
    "archive": "archive_throughput",
    "replay": "replay_impact",
}
"""Name -> module."""


def main() -> int:
    """One after the other, since they measure time on the same cores; `--keep` only keeps what was measured last."""
    if sys.argv[1:] == ["--keep"]:
        print(f"Kept: {', '.join(keep()) or 'nothing'}. `.venv/bin/python -m docs.generate` writes the page.")
        return 0
    failed = [
        name
        for name, module in BENCHMARKS.items()
        if subprocess.run([sys.executable, "-m", f"benchmarks.{module}"], cwd=ROOT, check=False).returncode
    ]
    if failed:
        print(f"\nClaims fail in: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
