"""Real servers that all tests of one worker share: a broker with empty topics, PostgreSQL, Spark, and an Airflow."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from tests import ROOT
from tests.dags.waiting_dags import hourly_and_daily_report
from tests.infra.conftest import free_port
from tests.support import postgres as own_postgres
from twofold.infra.airflow import airflow_api, airflow_processes
from twofold.infra.kafka import broker as kafka
from twofold.infra.kafka import topic_admin
from twofold.infra.process import supervisor
from twofold.infra.process.ports import HOST
from twofold.infra.project.settings import Settings
from twofold.infra.spark import connect_server
from twofold.tables.declare.registry import load
from twofold.tables.refresh.events.topic_specs import specs

_numbers = count(1)

SOON = {
    "log.retention.check.interval.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "remote.log.manager.task.interval.ms": 500,
}
"""How often the broker looks for what it may archive, remove or compact: a test waits for it."""


def wait_until(condition: Callable[[], object], timeout_s: float = 900) -> None:
    """Return when the condition holds; the limit is for what never comes, on the slowest machine."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def broker() -> Iterator[Settings]:
    """Settings of a supervised broker, ready, in a home with a space in its path.

    A test may kill it, since it comes back with all that it had. Other tests may have left topics on it.
    """
    home = ROOT / ".twofold" / f"test {os.getpid()}"
    settings = Settings(home=home, kafka_port=free_port(), controller_port=free_port(), shuffle_partitions=1)
    try:
        kafka.prepare(settings)
        with (home / "kafka" / "server.properties").open("a") as file:
            file.write(kafka.as_properties(SOON))
        supervisor.start(settings, [kafka.program(settings)])
        kafka.wait_ready(settings)
        yield settings
    finally:
        supervisor.stop(settings)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def log(broker: Settings) -> Iterator[Settings]:
    """A home with nothing in it; the topics of `flights` on the broker are empty."""
    with empty_log(broker) as settings:
        yield settings


@contextmanager
def empty_log(broker: Settings) -> Iterator[Settings]:
    """The same, for as long as a block."""
    declared = specs(load(), "flights")
    names = [topic.name for topic in declared]
    with topic_admin.reach(broker) as admin:
        there = list(topic_admin.offsets(broker, names))
        if there:
            admin.delete_topics(there)
    wait_until(lambda: not topic_admin.offsets(broker, names))
    topic_admin.ensure_topics(broker, declared)
    home = broker.home.with_name(f"test-{os.getpid()}-log-{next(_numbers)}")
    try:
        yield replace(broker, home=home, bootstrap=broker.bootstrap_servers, archive=broker.archive_uri)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[own_postgres.Server]:
    """A PostgreSQL in a home that is closed to others."""
    closed = tmp_path_factory.mktemp("postgres")
    closed.chmod(0o700)
    with own_postgres.running(closed / "home") as server:
        yield server


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a supervised Spark Connect server in a home without anything else.

    A test may kill it, since it comes back.
    """
    home = tmp_path_factory.mktemp("spark-server")
    settings = Settings(home=home, spark_port=free_port(), shuffle_partitions=1, driver_memory="700m")
    try:
        supervisor.start(settings, [connect_server.program(settings)])
        yield settings
    finally:
        supervisor.stop(settings)


GREET = """
from airflow.sdk import Param, dag, task

@dag(schedule=None, params={"name": Param("nobody", type="string")})
def greet():
    @task
    def say(params):
        from twofold.infra.project.settings import Settings
        print("hello", params["name"], "from", Settings.from_environment().home)
    say()

greet()
"""
BROKEN = """
from airflow.sdk import dag
raise RuntimeError('on purpose')
"""
KILLING = """
from airflow.sdk import Asset, dag, task

class Text(str):
    pass

@dag(schedule=None)
def never_loaded():
    @task(inlets=[Asset(name="odd", uri="twofold://odd", extra={"column": Text("string")})])
    def say():
        pass
    say()

never_loaded()
"""
STANDING_IN = """
# The DAGs of the platform, for Airflow, of which each command's work is done at once.
# Each table has a task in most runs, and each task is a process: a few tables do.
import sys
from datetime import timedelta
from twofold.dags.operators import command_operator as command
from twofold.dags.table_dags import make_dags
from twofold.tables.declare.registry import Registry, load

command.PROGRAM = (sys.executable, "-m", "tests.platform.airflow.fake_commands")
declared = load()
few = [f"flights.{name}" for name in ("flights", "airport_weather", "delays_by_hour", "carrier_days")]
of_flights = make_dags(Registry(declared.topics, {name: declared.tables[name] for name in few}), "flights")
for made in (*of_flights, *make_dags(declared, "shop", only="shop.forget")):
    if made.dag_id == "flights.replay":
        made.get_task("approve").response_timeout = timedelta(seconds=10)
    if made.dag_id != "flights.stream":  # it would look for a driver every minute
        globals()[made.dag_id] = made
"""
USERS = "vera:viewer, uwe:user"
"""Further users of the Airflow of the tests."""


@pytest.fixture(scope="session")
def airflow_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a supervised Airflow, ready, with these DAGs and no other server."""
    home = tmp_path_factory.mktemp("airflow")
    port = free_port()
    settings = Settings(
        home=home,
        airflow_port=port,
        airflow_url=f"http://{HOST}:{port}/air",  # as through a proxy: all that asks Airflow has to know the path
        airflow_password="of the test",
        airflow_users=USERS,
    )
    dags = home / "dags"
    dags.mkdir()
    texts = {
        "greet": GREET,
        "broken": BROKEN,
        "killing": KILLING,
        "standing_in": STANDING_IN,
        "daily_report": hourly_and_daily_report()[1],
    }
    for name, text in texts.items():
        (dags / f"{name}.py").write_text(text)
    try:
        airflow_processes.prepare(settings)
        supervisor.start(settings, airflow_processes.programs(settings, dags=dags))
        airflow_api.wait_ready(settings)
        yield settings
    finally:
        supervisor.stop(settings)
