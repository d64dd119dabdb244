"""A Spark session for all tests that need one, a fresh lake for each test, and the order of the files."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from infra.delta.lake import Lake
from infra.settings import ROOT, Settings
from infra.spark.spark_session import class_options
from tests.late_reading import late_reading
from tests.servers import airflow_alone, broker, log, postgres, spark_server

__all__ = ["airflow_alone", "broker", "late_reading", "log", "postgres", "spark_server"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A worker of xdist is to be as the process that a person starts. For want of a file pyspark takes its main module for a
# run of its own doctests; and the library readline, which pytest imports, hands the size of a terminal on to it.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# Few JVMs of a test live long enough for what the second compiler costs: a third of the CPU time of a short one.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long an example takes says what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

LONG = ("platform", "capture", "chaos", "servers", "batch", "rebuild", "nexmark", "tpch", "kinds", "rewrite", "audit")
"""Folders whose files take longest: workers, which take one file after the other, then end at about the same time."""
SPREAD = ("test_exactly_once.py",)
"""Files of long tests that share nothing but what every worker has: each test goes to whichever worker is free."""
SHARED = {
    "airflow": (
        "tests/infra/airflow/test_airflow_processes.py",
        "tests/platform/airflow/test_dag_runs.py",
        "tests/platform/airflow/test_forget_dag.py",
        "tests/platform/airflow/test_users.py",
    ),
    "platform of flights": (
        "tests/platform/airflow/test_airflow_repairs.py",
        "tests/platform/airflow/test_page_in_airflow.py",
    ),
    "PostgreSQL": (
        "tests/infra/postgres/test_database_connection.py",
        "tests/infra/capture/test_catalog_changes.py",
        "tests/batch/audit/test_copy_audit.py",
        "tests/batch/audit/test_database_audit.py",
        "tests/cli/test_capture_scaffold.py",
        "tests/outputs/targets/test_postgres_copy.py",
        "tests/outputs/follow/test_runner.py",
        "tests/platform/test_forgotten_copies.py",
    ),
    "Spark server": (
        "tests/infra/spark/test_connect_server.py",
        "tests/chaos/test_killed_server.py",
        "tests/chaos/servers/test_killed_publications.py",
    ),
}
"""Server -> the files that share one; a worker takes them one after the other."""
SERVER_OF = {file: server for server, files in SHARED.items() for file in files}
WAITING = (
    *SHARED,
    "tests/platform/test_demos.py",
    "tests/docs/test_tutorial.py",
    "tests/platform/test_killed_broker.py",
)
"""Files whose tests wait for servers: the last worker begins with them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a Spark session, and begin with the files that take longest."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: LONG.index(item.path.parent.name) if item.path.parent.name in LONG else len(LONG))


def pytest_sessionfinish() -> None:
    """Clients of a broker that has stopped go on logging, to a stream that pytest has closed."""
    logging.raiseExceptions = False


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands workers whole files, since the tests of one share what takes long to set up.

    Of three workers the last begins with `WAITING`, which the others take when nothing else is left.
    The groups of `--dist loadgroup` come to nothing with pytest 9.2, which does not read the names that xdist 3.8 sets.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if Path(file).name in SPREAD:
                return nodeid
            return SERVER_OF.get(file, file)

        def _assign_work_unit(self, node: Any) -> None:
            waits = self.numnodes > 2 and node.gateway.id == f"gw{self.numnodes - 1}"
            scope = next((scope for scope in self.workqueue if (scope in WAITING) == waits), None)
            if scope is not None:
                self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return ByFile(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session, with one core and one shuffle partition."""
    from infra.spark.spark_session import session

    home = ROOT / ".twofold" / f"test-{os.getpid()}"
    settings = Settings(home=home, spark_master="local[1]", shuffle_partitions=1)
    # Of a small heap and one core the threads of G1 take a tenth of the CPU, those of the serial collector a twentieth.
    options = [*class_options(settings), "-XX:-UseG1GC", "-XX:+UseSerialGC"]
    # One task at a time: each of the workers has a session, and the machine two cores.
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("JAVA_TOOL_OPTIONS")  # this one lives as long as its worker
        spark = session(settings, "tests", options)
    # Many tests want a failure, each of which Spark would log with its stack.
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home with nothing in it."""
    return Settings(home=tmp_path / "home", shuffle_partitions=1)


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A lake without tables."""
    return Lake(settings)
