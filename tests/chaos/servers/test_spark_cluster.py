"""A Spark cluster of two workers that lose one after the other: the tables are as on one machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import ROOT
from tests.chaos.final_state import assert_each_record_is_there_once, assert_tables_are_right
from tests.chaos.servers.cluster_driver import LEGS
from twofold.infra.errors import SparkUnreachable
from twofold.infra.process.ports import free_port
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import environment
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ["flights.delays_by_hour", "flights.flights"]
"""A window and a join, both with state."""

pytestmark = [pytest.mark.prove, pytest.mark.platform]


class Cluster:
    """A standalone master and its workers, each in a process group of its own."""

    def __init__(self, settings: Settings) -> None:
        import pyspark

        self._home = settings.home / "cluster"
        self._home.mkdir(parents=True)
        self._class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        options = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
        self._environment = {**os.environ, **environment(settings), **options, "SPARK_NO_DAEMONIZE": "1"}
        self._environment.pop("PYTHONPATH")  # executors have it from the application
        self._port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = ["--port", str(self._port), "--webui-port", str(free_port())]
        self._start("master", "master.Master", "--host", "127.0.0.1", *ports)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start_worker(self, name: str) -> None:
        """Start a worker with one core, or start it again."""
        work = ["--work-dir", str(self._home / name), "--cores", "1", "--memory", "2g"]
        ports = ["--port", str(free_port()), "--webui-port", str(free_port())]
        self._start(name, "worker.Worker", "--host", "127.0.0.1", *work, *ports, self.master)

    def kill(self, name: str) -> None:
        """Kill a process and the executors that it started, at once."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def _start(self, name: str, of: str, *arguments: str) -> None:
        command = [self._class, f"org.apache.spark.deploy.{of}", *arguments]
        with (self._home / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )


@pytest.fixture
def cluster(settings: Settings) -> Iterator[Cluster]:
    found = Cluster(settings)
    try:
        yield found
    finally:
        found.stop()


@contextmanager
def driving(settings: Settings) -> Iterator[subprocess.Popen[str]]:
    """A process that works through flights on the cluster, ended with the block."""
    reaper = [sys.executable, "-m", "twofold.infra.process.process_reaper", "--"]
    process = subprocess.Popen(
        [*reaper, sys.executable, "-m", "tests.chaos.servers.cluster_driver", *TABLES],
        cwd=ROOT,
        env={**os.environ, **settings.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(300)


def test_a_cluster_that_loses_its_workers_leaves_the_same_tables(
    spark: SparkSession, settings: Settings, cluster: Cluster
) -> None:
    """A worker dies within a micro-batch with state, the other one within a backfill: two minutes for JVMs."""
    of_cluster = replace(settings, spark_master=cluster.master, spark_cores=2, small_rows=0)
    for name in ("one", "other"):
        cluster.start_worker(name)
    with driving(of_cluster) as driver:
        assert driver.stdout
        assert driver.stderr
        for line in driver.stdout:
            if line.strip() == "streams 2":
                time.sleep(2)
                cluster.kill("one")
            elif line.strip() == "backfill":
                cluster.start_worker("one")
                time.sleep(2)
                cluster.kill("other")
            elif line.startswith("unexplained"):
                assert line.strip() == "unexplained {}"
                break
        assert driver.wait(300) == 0, driver.stderr.read()[-3000:]
    world = World(spark, settings, "flights")
    assert_each_record_is_there_once(world, LEGS)
    assert_tables_are_right(world, TABLES, LEGS)


def test_a_cluster_without_a_free_core_ends_the_wait(
    settings: Settings, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: a session of this one stays as it is."""
    script = (
        "from twofold.infra.project.settings import Settings\n"
        "from twofold.infra.spark import executors; executors._FIRST_S = 3.0\n"
        "from twofold.infra.spark.spark_session import session\n"
        "session(Settings.from_environment(), 'waits')"
    )
    waiting = replace(settings, spark_master=cluster.master)
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, **waiting.environment()}, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip
    assert f"{SparkUnreachable.__name__}: {cluster.master} gave no executor within 3 s" in ran.stderr
