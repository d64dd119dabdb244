"""In a real Airflow every DAG passes what a form says on to its command, and what that reports to its tasks.

`fake_commands` leaves out the commands' work, which `test_commands` has; in `test_airflow_repairs` a chain is real.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.servers import wait_until
from twofold.batch.plan.plan import Plans
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.process.readiness import until_answered
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

pytestmark = pytest.mark.platform

RUN_TIMEOUT_S = 600
TABLE, WEATHER = "flights.delays_by_hour", "flights.weather"
DAYS = {"start": "2013-01-01T00:00:00Z", "end": "2013-01-03T00:00:00Z"}
RUNS = [
    ("reconcile", {"verify": True}, "look", "announce"),
    ("backfill.delays_by_hour", {**DAYS, "ask": False}, "publish", "announce"),
    ("quality", {}, "check", TABLE),
    ("audit", {}, "look", TABLE),
    ("audit_topic", {"topic": WEATHER, "from_offsets": "0:0", "to_offsets": "0:9"}, "look", WEATHER),
    ("recover", {"table": TABLE, "at_most": 2, "from_archive": True}, "recover", "recover"),
]
REFUSED = [
    ("flights.repair", {"table": "../x"}),
    ("flights.backfill.flights", {"everything": "yes"}),
    ("flights.replay", {"topic": "flights.departures", "from_offsets": "all"}),
]


OF_DAYS = f"flights.backfill.{TABLE.partition('.')[2]}"
BLOCKED, UNCHANGED = "flights.backfill.carrier_days", "flights.backfill.airport_weather"
APPROVED, REJECTED, EXPIRED = "flights.repair", "flights.redrive", "flights.replay"
ANSWER_AFTER_S = 20.0


@pytest.fixture(scope="module")
def client(airflow_alone: Settings) -> Client:
    found = Client(airflow_alone)
    wait_until(lambda: "flights.audit" in found.dags())
    return found


@pytest.fixture(scope="module")
def runs(client: Client) -> dict[str, str]:
    """DAG -> its run: all are started at once, and take their turns in the pool."""
    return {dag: client.trigger(f"flights.{dag}", conf) for dag, conf, _, _ in RUNS}


@pytest.mark.parametrize(("dag", "command", "last"), [(dag, *tasks) for dag, _, *tasks in RUNS])
def test_a_run_succeeds(client: Client, runs: dict[str, str], dag: str, command: str, last: str) -> None:
    """Six runs share the machine, and each of their tasks takes seconds to start."""
    name, run = f"flights.{dag}", runs[dag]
    state = client.wait(name, run, RUN_TIMEOUT_S)
    tasks = {task.task_id: task.state for task in client.task_instances(name, run)}
    failed = [client.task_log(name, run, task) for task, state in tasks.items() if state == "failed"]
    assert (state, failed) == ("success", [])
    assert (tasks[command], tasks[last]) == ("success", "success")


def test_tables_that_were_right_succeed_without_being_started(client: Client) -> None:
    run = client.trigger("flights.reconcile")
    assert client.wait("flights.reconcile", run, RUN_TIMEOUT_S) == "success"
    first = next(iter(load().in_order("flights"))).full_name
    tasks = {task.task_id: task for task in client.task_instances("flights.reconcile", run)}
    others = {name for name in tasks if name.startswith("flights.")} - {first}
    assert {task.state for task in tasks.values()} == {"success"}
    assert sorted(name for name, task in tasks.items() if task.try_number) == sorted(
        ["look", first, "announce", "all_right"]
    )
    assert others
    assert {tasks[name].note for name in others} == {"Right: nothing was late, no input has changed."}
    log = client.task_log("flights.reconcile", run, first)
    assert "1 rows changed (+0 -0 ~1), version 1 to 2" in log
    of_first = {
        (event["partition_key"], event["extra"]["cause"])
        for event in events_of(client, "flights.reconcile")
        if event["name"] == first
    }
    assert of_first == {(None, "late"), ("2013-01-02", "late")}


def test_what_runs_changed_is_checked_and_nothing_else(client: Client, runs: dict[str, str]) -> None:
    for dag in ("reconcile", "backfill.delays_by_hour"):
        assert client.wait(f"flights.{dag}", runs[dag], RUN_TIMEOUT_S) == "success"
    changed = {next(iter(load().in_order("flights"))).full_name, TABLE}

    def checked() -> set[str]:
        """What was checked in runs of the asset's events, several of which may have started one run."""
        return {
            task.task_id
            for run in client.triggered_by_assets("flights.quality")
            for task in client.task_instances("flights.quality", run)
            if task.state == "success" and task.try_number and task.task_id.startswith("flights.")
        }

    wait_until(lambda: checked() >= changed, RUN_TIMEOUT_S)
    assert checked() == changed


def test_a_range_that_is_not_there_yet_fails_before_it_is_decoded(client: Client) -> None:
    run = client.trigger("flights.replay", {"topic": WEATHER, "to_offsets": "0:1000000000"})
    assert client.wait("flights.replay", run, RUN_TIMEOUT_S) == "failed"
    states = {task.task_id: task.state for task in client.task_instances("flights.replay", run)}
    assert (states["range"], states["preview"]) == ("failed", "upstream_failed")
    assert "ends beyond 1000, the frontier" in client.task_log("flights.replay", run, "range")


@pytest.mark.parametrize(("dag_id", "conf"), REFUSED)
def test_params_that_cannot_be_meant_start_no_run(client: Client, dag_id: str, conf: dict[str, object]) -> None:
    with pytest.raises(BadArgument):
        client.trigger(dag_id, conf)


def test_a_range_that_holds_nothing_fails_at_once_with_one_message(client: Client) -> None:
    """The form cannot compare two params, so the task does; another attempt would not help."""
    dag = "flights.backfill.flights"
    run = client.trigger(dag, {"start": DAYS["end"], "end": DAYS["start"]})
    assert client.wait(dag, run, RUN_TIMEOUT_S) == "failed"
    assert tries_of(client, dag, run)["preview"] == ("failed", 1)
    assert "is not before end=" in client.task_log(dag, run, "preview")


def test_a_rule_that_a_shown_row_breaks_ends_the_publication_at_once(client: Client, rewrites: dict[str, str]) -> None:
    run = rewrites[BLOCKED]
    assert client.wait(BLOCKED, run, RUN_TIMEOUT_S) == "failed"
    tasks = tries_of(client, BLOCKED, run)
    assert (tasks["publish"], tasks["announce"]) == (("failed", 1), ("upstream_failed", 0))
    assert "1 row of flights.carrier_days breaks flights > 0." in client.task_log(BLOCKED, run, "publish")


def test_where_nothing_would_change_no_person_is_asked_and_all_is_green(
    client: Client, rewrites: dict[str, str]
) -> None:
    assert client.wait(UNCHANGED, rewrites[UNCHANGED], RUN_TIMEOUT_S) == "success"
    tasks = client.task_instances(UNCHANGED, rewrites[UNCHANGED])
    assert {task.task_id for task in tasks if task.try_number} == {"preview"}
    assert {task.state for task in tasks} == {"success"}
    notes = {task.note for task in tasks if task.task_id != "preview"}
    assert notes == {"Nothing would change: there was nothing to publish."}


def test_airflows_own_backfill_takes_a_day_a_run(client: Client, rewrites: dict[str, str]) -> None:
    runs = days_of(client, OF_DAYS)
    assert sorted(runs) == ["2013-01-05", "2013-01-06"]
    assert [client.wait(OF_DAYS, runs[day], RUN_TIMEOUT_S) for day in runs] == ["success", "success"]
    command = f"./twofold backfill {TABLE} --start 2013-01-06T00:00:00+00:00 --end 2013-01-07T00:00:00+00:00"
    assert f"{command} --preview --json" in client.task_log(OF_DAYS, runs["2013-01-06"], "preview")


def test_a_dag_of_ones_own_runs_once_for_each_day_that_changed(client: Client, rewrites: dict[str, str]) -> None:
    """It is the second example of the documentation."""
    wait_until(lambda: sorted(days_of(client, "daily_report")) == ["2013-01-05", "2013-01-06"], RUN_TIMEOUT_S)
    for day, run in days_of(client, "daily_report").items():
        assert client.wait("daily_report", run, RUN_TIMEOUT_S) == "success"
        assert f"The delays of {day} were corrected." in client.task_log("daily_report", run, "report")


def test_a_killed_preview_is_repeated_and_published_once_approved(
    client: Client, rewrites: dict[str, str], asked: None, airflow_alone: Settings
) -> None:
    """The person rejects another plan at the same time: nothing of that is published."""
    assert Plans(airflow_alone).find("repair-1-").asked_in == f"{APPROVED} {rewrites[APPROVED]}"
    client.answer(APPROVED, rewrites[APPROVED], "Approve", "--it is right")
    client.answer(REJECTED, rewrites[REJECTED], "Reject")
    assert client.wait(APPROVED, rewrites[APPROVED], RUN_TIMEOUT_S) == "success"
    assert tries_of(client, APPROVED, rewrites[APPROVED])["preview"] == ("success", 2)
    command = "publish repair-1-flights.flights --approved-by admin '--because=--it is right' --json"
    assert command in client.task_log(APPROVED, rewrites[APPROVED], "publish")
    assert client.wait(REJECTED, rewrites[REJECTED], RUN_TIMEOUT_S) == "success"
    assert tries_of(client, REJECTED, rewrites[REJECTED])["publish"] == ("skipped", 0)
    command = f"./twofold redrive {WEATHER} '--reason=no such reason' --preview --json"
    assert command in client.task_log(REJECTED, rewrites[REJECTED], "preview")


def test_a_plan_that_no_person_answers_fails_once_and_publishes_nothing(
    client: Client, rewrites: dict[str, str]
) -> None:
    """Such an answer has ten seconds here, and three days elsewhere."""
    assert client.wait(EXPIRED, rewrites[EXPIRED], RUN_TIMEOUT_S) == "failed"
    tasks = tries_of(client, EXPIRED, rewrites[EXPIRED])
    assert (tasks["approve"], tasks["publish"]) == (("failed", 1), ("upstream_failed", 0))
    command = f"./twofold replay {WEATHER} --to 0:9 --preview --json"
    assert command in client.task_log(EXPIRED, rewrites[EXPIRED], "preview")


@pytest.fixture(scope="module")
def rewrites(client: Client, runs: dict[str, str]) -> dict[str, str]:
    """DAG -> its run; each ends in another way."""
    days = {"from_date": "2013-01-05T00:00:00Z", "to_date": "2013-01-06T00:00:00Z", "max_active_runs": 1}
    client._call("POST", "/api/v2/backfills", {"dag_id": OF_DAYS, "dag_run_conf": {"ask": False}, **days})
    conf: dict[str, dict[str, object]] = {
        BLOCKED: {**DAYS, "ask": False},
        UNCHANGED: {},
        APPROVED: {"table": "flights.flights"},
        REJECTED: {"topic": WEATHER, "reason": "no such reason"},
        EXPIRED: {"topic": WEATHER, "to_offsets": "0:9"},
    }
    return {dag: client.trigger(dag, given) for dag, given in conf.items()}


@pytest.fixture(scope="module")
def asked(client: Client, rewrites: dict[str, str]) -> None:
    """Airflow fails a task whose answer comes before its scheduler has seen that the process which asked has ended."""
    for dag in (APPROVED, REJECTED):
        wait_until(lambda dag=dag: client.question(dag, rewrites[dag]), RUN_TIMEOUT_S)
    time.sleep(ANSWER_AFTER_S)


def events_of(client: Client, dag: str) -> list[Any]:
    """Events of assets that runs of a DAG published; Airflow fails to list them while a run they started is queued."""
    path = f"/api/v2/assets/events?source_dag_id={dag}"
    return until_answered(lambda: client._call("GET", path)["asset_events"], ProcessFailed, RUN_TIMEOUT_S)


def days_of(client: Client, dag: str) -> dict[str, str]:
    """Day -> the run of the DAG that is about it."""
    runs = client._call("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after")["dag_runs"]
    return {run["partition_key"]: run["dag_run_id"] for run in runs if run["partition_key"]}


def tries_of(client: Client, dag: str, run: str) -> dict[str, tuple[str | None, int]]:
    """Task -> its state, and how often it was started."""
    return {task.task_id: (task.state, task.try_number) for task in client.task_instances(dag, run)}
