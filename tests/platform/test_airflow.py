"""Every DAG of a domain runs to success in a real Airflow."""

from __future__ import annotations

import json
import shutil
import time

import pyarrow as pa
import pytest

from dags.watch import driver_name
from infra import supervisor
from infra.airflow_api import Client
from infra.errors import BadArgument
from infra.locks import is_held
from infra.settings import Settings
from tables.checkpoint import Checkpoint
from tables.lake import Lake
from tables.registry import load
from tests.platform.airflow import feed
from tests.platform.conftest import wait_until

pytestmark = [pytest.mark.platform, pytest.mark.timeout(1500)]

RUN_TIMEOUT_S = 600
"""One Spark job on two busy cores, with what waits before it in the pool."""

ANSWER_AFTER_S = 20.0
CLOSED_MS = 1_357_142_400_000  # 2013-01-02T16:00Z

DAYS = {"start": "2013-01-01T00:00:00Z", "end": "2013-01-03T00:00:00Z"}
RUNS = [
    ("flights.stream", {}, "watch"),
    ("flights.reconcile", {"verify": True}, "recompute"),
    ("flights.backfill", {"table": "flights.delays_by_hour", **DAYS}, "recompute"),
    ("flights.replay", {"topic": "flights.departures"}, "decode"),
    ("flights.quality", {}, "check"),
    ("flights.audit", {}, "look"),
]
WEATHER = "flights.weather"
TOGETHER = [
    ("flights.redrive", {"topic": WEATHER, "reason": "no such reason"}, "decode"),
    ("flights.audit_topic", {"topic": WEATHER, "from_offsets": "0:0", "to_offsets": "0:9"}, WEATHER),
]
REFUSED = [
    ("flights.backfill", {"table": "../x", **DAYS}),
    ("flights.backfill", {"table": "flights.flights", "everything": "yes"}),
    ("flights.replay", {"topic": "flights.departures", "from_offsets": "all"}),
]


def test_every_dag_is_served(airflow: Client) -> None:
    assert airflow.import_errors() == {}
    from tests.dags.test_domains import KINDS

    assert sorted(airflow.dags()) == [f"flights.{kind}" for kind in KINDS]


@pytest.mark.parametrize(
    ("dag_id", "conf", "command"), RUNS, ids=[f"{dag} {conf or ''}".strip() for dag, conf, _ in RUNS]
)
def test_a_run_succeeds(airflow: Client, dag_id: str, conf: dict[str, object], command: str) -> None:
    run = airflow.trigger(dag_id, conf)
    state = airflow.wait(dag_id, run, RUN_TIMEOUT_S)
    tasks = {task.task_id: task for task in airflow.task_instances(dag_id, run)}
    failed = [airflow.task_log(dag_id, run, name) for name, task in tasks.items() if task.state == "failed"]
    assert (state, failed) == ("success", [])
    assert tasks[command].state == "success"


def test_runs_on_a_range_of_a_topic_end_as_they_should(airflow: Client) -> None:
    """All at once: one of them reads what is not there yet, the others take their turn in the pool."""
    beyond = {"topic": WEATHER, "to_offsets": "0:1000000000"}
    replay = airflow.trigger("flights.replay", beyond)
    runs = [(dag_id, airflow.trigger(dag_id, conf), task) for dag_id, conf, task in TOGETHER]
    assert airflow.wait("flights.replay", replay, RUN_TIMEOUT_S) == "failed"
    states = {task.task_id: task.state for task in airflow.task_instances("flights.replay", replay)}
    assert (states["range"], states["decode"]) == ("failed", "upstream_failed")
    assert "the frontier of what ingest has taken in" in airflow.task_log("flights.replay", replay, "range")
    for dag_id, run, task in runs:
        assert airflow.wait(dag_id, run, RUN_TIMEOUT_S) == "success"
        assert {t.task_id: t.state for t in airflow.task_instances(dag_id, run)}[task] == "success"


@pytest.mark.parametrize(("dag_id", "conf"), REFUSED)
def test_params_that_cannot_be_meant_start_no_run(airflow: Client, dag_id: str, conf: dict[str, object]) -> None:
    with pytest.raises(BadArgument):
        airflow.trigger(dag_id, conf)


def test_a_range_that_holds_nothing_fails_at_once_with_one_message(airflow: Client) -> None:
    """The form cannot compare two params, so the task does; another attempt would not help."""
    conf = {"table": "flights.flights", "start": DAYS["end"], "end": DAYS["start"]}
    run = airflow.trigger("flights.backfill", conf)
    assert airflow.wait("flights.backfill", run, RUN_TIMEOUT_S) == "failed"
    [task] = [t for t in airflow.task_instances("flights.backfill", run) if t.task_id == "recompute"]
    assert task.try_number == 1
    assert "is not before end=" in airflow.task_log("flights.backfill", run, "recompute")


def test_a_damaged_row_is_shown_to_a_person_and_overwritten_once_they_approve(
    airflow: Client, platform: Settings
) -> None:
    dag, name, lake = "flights.repair", "flights.delays_by_hour", Lake(platform)
    row = "origin = 'JFK' AND hour = '2013-01-01T15:00:00Z'"
    checkpoint = Checkpoint.of(platform, load().find_table(name))
    wait_until(lambda: (checkpoint.watermark_ms() or 0) > CLOSED_MS, RUN_TIMEOUT_S)
    [right] = pa.table(lake.open(name).scan(predicate=row)).to_pylist()
    lake.open(name).update(updates={"flights": "flights + 1000"}, predicate=row)

    run = airflow.trigger(dag, {"table": name})
    wait_until(lambda: airflow.question(dag, run, "approve"), RUN_TIMEOUT_S)
    question = airflow.question(dag, run, "approve")
    assert question
    assert question.subject == f"Overwrite 1 row of {name}?"
    told = f"| origin=JFK hour=2013-01-01T15:00:00+00:00 | flights | {right['flights'] + 1000} | {right['flights']} |"
    assert told in question.body.splitlines()
    # Airflow fails a task whose answer comes before its scheduler has seen that the process which asked has ended.
    time.sleep(ANSWER_AFTER_S)
    airflow.answer(dag, run, "approve", "Approve")

    assert airflow.wait(dag, run, RUN_TIMEOUT_S) == "success"
    assert pa.table(lake.open(name).scan(predicate=row)).to_pylist() == [right]
    ledger = pa.table(lake.open("ledger.corrections").scan(predicate="cause = 'repair'")).to_pylist()
    sides = [(c["table"], json.loads(c["before"])["flights"], json.loads(c["after"])["flights"]) for c in ledger]
    assert sides == [(name, right["flights"] + 1000, right["flights"])]


def test_lost_state_is_made_again_and_its_stream_goes_on(airflow: Client, platform: Settings) -> None:
    dag, watch, name, lake = "flights.recover", "flights.stream", "flights.delays_by_hour", Lake(platform)
    checkpoint = Checkpoint.of(platform, load().find_table(name))
    lost = checkpoint.stream
    airflow.pause(watch, paused=True)  # it would start the driver again
    supervisor.stop_program(platform, driver_name("flights"))
    wait_until(lambda: not is_held(platform.driver_lock("flights")))
    shutil.rmtree(checkpoint.path / "state")

    run = airflow.trigger(dag, {"table": name})
    assert airflow.wait(dag, run, RUN_TIMEOUT_S) == "success", airflow.task_log(dag, run, "recover")
    made = airflow.result(dag, run, "recover")
    assert (made["found"], made["rows"]["missing"], made["rows"]["extra"], made["rows"]["changed"]) == ("lost", 0, 0, 0)
    supervisor.start_program(platform, driver_name("flights"))
    airflow.pause(watch, paused=False)
    feed(platform, "2013-01-03", "2013-01-04")

    def hours() -> int:
        return len(pa.table(lake.open(name).scan(predicate="hour >= '2013-01-03T10:00:00Z'")))

    wait_until(lambda: hours() > 30, RUN_TIMEOUT_S)
    assert checkpoint.stream not in ("", lost)
    run = airflow.trigger("flights.reconcile", {"verify": True})
    assert airflow.wait("flights.reconcile", run, RUN_TIMEOUT_S) == "success"
