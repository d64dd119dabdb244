"""Milliseconds of CPU per declaration file, when Airflow's DAG processor parses the DAGs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.measuring.figures import report, spread
from tests import ROOT

ROUNDS, GOAL_MS = 5, 50.0
PARSE = """
import json, time
import airflow.sdk  # the DAG processor has loaded it already
started = time.process_time()
from twofold.tables.declare.registry import load
files = len(load().declarations)
loaded = time.process_time()
import twofold.dags.generate_dags
parsed = time.process_time()
print(json.dumps([(loaded - started) / files * 1_000, (parsed - started) / files * 1_000]))
"""


def main() -> int:
    """Each round in a process of its own, as the DAG processor does; the first one fills caches and does not count."""
    rounds = [parse() for _ in range(ROUNDS + 1)][1:]
    loading, parsing = (spread(values) for values in zip(*rounds, strict=True))
    figures = {"ms per file to load declarations": loading, "ms per file with all of its DAGs": parsing}
    claims = {f"a declaration file takes less than {GOAL_MS:g} ms": parsing["median"] < GOAL_MS}
    return 0 if report("dags", figures, claims) else 1


def parse() -> tuple[float, float]:
    """Of a fresh process: to load the declarations, and to make all DAGs of them."""
    with tempfile.TemporaryDirectory() as airflow_home:
        environment = {**os.environ, "AIRFLOW_HOME": airflow_home}
        command = [sys.executable, "-c", PARSE]
        ran = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    loading, parsing = json.loads(ran.stdout.splitlines()[-1])
    return float(loading), float(parsing)


if __name__ == "__main__":
    sys.exit(main())
