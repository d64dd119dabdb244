"""In a real Airflow every DAG passes what a form says on to its command, and what that reports to its tasks.

`fake_commands` leaves out the commands' work, which `test_commands` has; in `test_airflow_repairs` a chain is real.
"""

from __future__ import annotations

import pytest

from infra.airflow.airflow_api import Client
from infra.errors import BadArgument
from infra.settings import Settings
from tables.declare.registry import load
from tests.servers import wait_until

pytestmark = pytest.mark.platform

RUN_TIMEOUT_S = 300
TABLE, WEATHER = "flights.delays_by_hour", "flights.weather"
DAYS = {"start": "2013-01-01T00:00:00Z", "end": "2013-01-03T00:00:00Z"}
RUNS = [
    ("reconcile", {"verify": True}, "look", "announce"),
    ("backfill", {"table": TABLE, **DAYS, "ask": False}, "publish", "announce"),
    ("replay", {"topic": WEATHER, "to_offsets": "0:9", "ask": False}, "publish", "announce"),
    ("redrive", {"topic": WEATHER, "reason": "no such reason", "ask": False}, "publish", "announce"),
    ("quality", {}, "check", TABLE),
    ("audit", {}, "look", TABLE),
    ("audit_topic", {"topic": WEATHER, "from_offsets": "0:0", "to_offsets": "0:9"}, "look", WEATHER),
    ("recover", {"table": TABLE, "at_most": 2, "from_archive": True}, "recover", "recover"),
]
REFUSED = [
    ("flights.backfill", {"table": "../x", **DAYS}),
    ("flights.backfill", {"table": "flights.flights", "everything": "yes"}),
    ("flights.replay", {"topic": "flights.departures", "from_offsets": "all"}),
]


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
    """Eight runs share the machine, each task of which takes seconds to start."""
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


def test_what_runs_changed_is_checked_and_nothing_else(client: Client, runs: dict[str, str]) -> None:
    for dag in ("reconcile", "backfill"):
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
    conf = {"table": "flights.flights", "start": DAYS["end"], "end": DAYS["start"]}
    run = client.trigger("flights.backfill", conf)
    assert client.wait("flights.backfill", run, RUN_TIMEOUT_S) == "failed"
    [task] = [t for t in client.task_instances("flights.backfill", run) if t.task_id == "preview"]
    assert task.try_number == 1
    assert "is not before end=" in client.task_log("flights.backfill", run, "preview")
