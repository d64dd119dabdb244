"""A whole platform: its Airflow watches the stream, verifies tables, and repairs what a person approves."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest

from tests.platform.airflow.running_airflow import ANSWER_AFTER_S, CLOSED_MS, HOURS, REASON, RUN_TIMEOUT_S
from tests.servers import wait_until
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.airflow.dag_names import MAINTAIN
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.topic_admin import reach
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.timeout(1500)]


def test_every_dag_is_served(airflow: Client) -> None:
    """The first to need a platform: all its servers start, and two days of flights are sent."""
    assert airflow.import_errors() == {}
    from tests.dags.test_generated_dags import dags_of

    assert sorted(airflow.dags()) == sorted([MAINTAIN, *dags_of("flights")])


def test_only_the_chosen_domain_has_processes_and_topics(platform: Settings) -> None:
    """It was started by `up flights`."""
    processes = {process.name for process in supervisor.state(platform)}
    assert {name for name in processes if name.startswith("stream-")} == {"stream-flights"}
    assert processes & {"database", "connect"} == set()
    with reach(platform) as client:
        assert {name.partition(".")[0] for name in client.list_topics()} & set(load().domains) == {"flights"}


@pytest.mark.parametrize(
    ("dag", "conf", "command"),
    [("flights.stream", {}, "watch"), ("flights.reconcile", {"verify": True}, "look"), (MAINTAIN, {}, MAINTAIN)],
)
def test_a_run_succeeds(airflow: Client, dag: str, conf: dict[str, object], command: str) -> None:
    """A reconcile verifies all tables on the platform's Spark server, beside the stream."""
    run = airflow.trigger(dag, conf)
    state = airflow.wait(dag, run, RUN_TIMEOUT_S)
    tasks = {task.task_id: task.state for task in airflow.task_instances(dag, run)}
    failed = [airflow.task_log(dag, run, name) for name, state in tasks.items() if state == "failed"]
    assert (state, failed) == ("success", [])
    assert tasks[command] == "success"


def test_a_damaged_row_is_shown_and_overwritten_once_approved(airflow: Client, platform: Settings) -> None:
    """Two real Spark jobs, and an answer that has to wait."""
    dag, name, lake = "flights.repair", HOURS, Lake(platform)
    row = "origin = 'JFK' AND hour = '2013-01-01T15:00:00Z'"
    checkpoint = Checkpoint.of_table(platform, load().find_table(name))
    wait_until(lambda: (checkpoint.watermark_ms() or 0) > CLOSED_MS, RUN_TIMEOUT_S)
    [right] = pa.table(lake.open(name).scan(predicate=row)).to_pylist()
    lake.open(name).update(updates={"flights": "flights + 1000"}, predicate=row)

    run = airflow.trigger(dag, {"table": name})
    wait_until(lambda: airflow.question(dag, run), RUN_TIMEOUT_S)
    asked = airflow.question(dag, run)
    assert asked
    assert asked["subject"].startswith("Publish 2 changed rows (repair-"), "and the row of a table below"
    shown = f"| origin=JFK hour=2013-01-01T15:00:00Z | ~ | flights | {right['flights'] + 1000} -> {right['flights']} |"
    assert shown in asked["body"].splitlines()
    # Airflow fails a task whose answer comes before its scheduler has seen that the process which asked has ended.
    time.sleep(ANSWER_AFTER_S)
    airflow.answer(dag, run, "Approve", REASON)

    assert airflow.wait(dag, run, RUN_TIMEOUT_S) == "success"
    assert pa.table(lake.open(name).scan(predicate=row)).to_pylist() == [right]
    ledger = pa.table(lake.open("ledger.corrections").scan(predicate="cause = 'repair'")).to_pylist()
    sides = [(c["table"], json.loads(c["before"])["flights"], json.loads(c["after"])["flights"]) for c in ledger]
    assert sides == [(name, right["flights"] + 1000, right["flights"])]
