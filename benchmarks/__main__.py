"""Runs every benchmark, each in a process of its own; exits with 1 when a claim fails."""

from __future__ import annotations

import subprocess
import sys

from infra.settings import ROOT

BENCHMARKS = {
    "drain": "ingest_throughput",
    "capture": "capture_throughput",
    "freshness": "stream_freshness",
    "catch_up": "catch_up_time",
    "commands": "command_latency",
    "bookkeeping": "microbatch_overhead",
    "reconcile": "refresh.reconcile_time",
    "ledgers": "ledger_growth",
    "revisions": "refresh.revision_time",
    "timelines": "refresh.timeline_refresh",
    "kinds": "stateful_throughput",
    "decoding": "decoding",
    "dags": "dag_parsing",
    "archive": "archive_throughput",
    "beside": "replay_impact",
}
"""Name -> module."""


def main() -> int:
    """One after the other: they measure time on the same cores."""
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
