"""Airflow: secrets that stay, an environment that does not change by itself, and a real DAG run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from tests.infra.conftest import Eventually
from tests.infra.project.projects import in_project
from twofold.infra.airflow import airflow_api, airflow_processes
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.status.parts.unloaded_dags import why_unloaded


def test_secrets_are_made_once_and_only_their_owner_can_read_them(settings: Settings) -> None:
    first, second = airflow_processes.environment(settings), airflow_processes.environment(settings)

    assert first == second
    secrets = list((settings.home / "airflow" / "secrets").iterdir())
    assert len(secrets) == 3, "and each user's password, once it is asked for"
    assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}


def test_a_password_of_yours_goes_before_the_one_that_was_made(settings: Settings) -> None:
    made = airflow_processes.passwords(settings)

    assert airflow_processes.passwords(settings) == made
    assert len(made["admin"]) >= 12
    assert airflow_processes.passwords(replace(settings, airflow_password="mine")) == {"admin": "mine"}


def test_airflow_loads_the_dags_of_a_project_too(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded() -> dict[str, Path]:
        given = airflow_processes.environment(settings)["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"]
        return {bundle["name"]: Path(bundle["kwargs"]["path"]) for bundle in json.loads(given)}

    assert loaded() == {"dags-folder": ROOT / "dags"}
    (in_project(monkeypatch, tmp_path / "mine") / "dags").mkdir()
    assert loaded() == {"dags-folder": ROOT / "dags", "project": tmp_path / "mine" / "dags"}


def test_each_user_has_a_role_and_a_password_of_its_own(settings: Settings) -> None:
    settings = replace(settings, airflow_password="mine", airflow_users="vera:viewer, uwe:user")
    passwords = airflow_processes.passwords(settings)
    assert airflow_processes.passwords(settings) == passwords
    assert list(passwords) == ["admin", "vera", "uwe"]
    assert len({*passwords.values(), "mine"}) == 3
    assert all(len(password) >= 12 for name, password in passwords.items() if name != "admin")
    environment = airflow_processes.environment(settings)
    assert environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin,vera:viewer,uwe:user"


def test_port_and_address_change_together(settings: Settings) -> None:
    environment = airflow_processes.environment(replace(settings, airflow_port=12345))

    assert environment["AIRFLOW__API__PORT"] == "12345"
    assert environment["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:12345"
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:12345/execution/"


def test_behind_a_proxy_all_that_asks_airflow_knows_its_path(settings: Settings) -> None:
    settings = replace(settings, airflow_port=12345, airflow_url="https://data.example.org/airflow/")
    environment = airflow_processes.environment(settings)

    assert environment["AIRFLOW__API__BASE_URL"] == "https://data.example.org/airflow"
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:12345/airflow/execution/"
    assert airflow_processes.base_url(settings) == "http://127.0.0.1:12345/airflow"


def test_who_finds_the_database_in_use_waits_for_it(settings: Settings) -> None:
    """After five seconds the API answered 500 to whoever started a run while the scheduler wrote."""
    from sqlalchemy import create_engine, text

    (settings.home / "airflow").mkdir(parents=True)
    address = airflow_processes.environment(settings)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    with create_engine(address).connect() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 1_000 * airflow_processes.DATABASE_WAIT_S


def test_tasks_get_the_settings_of_the_platform(settings: Settings) -> None:
    assert Settings.from_environment(airflow_processes.environment(settings)) == settings


def test_the_processes_do_not_depend_on_the_shell_they_are_started_from(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = airflow_processes.programs(settings)
    monkeypatch.setenv("PATH", "/elsewhere")

    assert airflow_processes.programs(settings) == before


def test_an_airflow_that_does_not_answer_is_reported_with_its_address(settings: Settings) -> None:
    with pytest.raises(ProcessFailed, match=f"{settings.airflow_port} .TWOFOLD_AIRFLOW_PORT") as failed:
        airflow_api.Client(settings).dags()

    assert "./twofold up" in str(failed.value.hint)


def test_waiting_for_airflow_ends_with_what_is_missing(settings: Settings) -> None:
    with pytest.raises(ProcessFailed, match="not ready after 0 s: api-server"):
        airflow_api.wait_ready(settings, timeout_s=0)


@pytest.mark.platform
def test_a_dag_is_loaded_unpaused_and_runs_with_the_settings_and_params(
    airflow_alone: Settings, eventually: Eventually
) -> None:
    """The first test of Airflow on its worker: that starts in half a minute or more."""
    client = airflow_api.Client(airflow_alone)
    eventually(lambda: "greet" in client.dags() and client.import_errors())

    run = client.trigger("greet", {"name": "Ada"})

    assert client.wait("greet", run, timeout_s=300) == "success"
    assert [(task.task_id, task.state) for task in client.task_instances("greet", run)] == [("say", "success")]
    assert f"hello Ada from {airflow_alone.home}" in client.task_log("greet", run, "say")
    assert "on purpose" in client.import_errors()["broken.py"]


@pytest.mark.platform
def test_a_dag_whose_parser_died_is_named_with_the_last_lines_of_its_log(
    airflow_alone: Settings, eventually: Eventually
) -> None:
    """Airflow shows no import error of a file whose process ended before it could say so."""
    eventually(lambda: airflow_processes.parser_traceback(airflow_alone))
    why = why_unloaded(airflow_alone, ["greet", "never_loaded", "flights.reconcile"]) or ""
    assert why.startswith("Airflow has not loaded never_loaded.\n")
    assert "RuntimeError: on purpose" in why
    assert "NotImplementedError" in why.splitlines()[-1]
    assert why.endswith("killing.Text'> are not supported")
    assert why_unloaded(airflow_alone, ["greet", "flights.reconcile"]) is None


@pytest.mark.platform
def test_old_events_and_runs_end_and_young_ones_stay(settings: Settings) -> None:
    before = datetime.now(UTC) - timedelta(days=30)
    assert airflow_processes.old_rows(settings, before) == 0, "there is no Airflow"
    airflow_processes.prepare(settings)
    with closing(sqlite3.connect(settings.home / "airflow" / "airflow.db")) as database:
        for days in (31, 29):
            at = f"{before + timedelta(days=30 - days):%Y-%m-%d %H:%M:%S.%f}"
            database.execute("INSERT INTO log (dttm, event) VALUES (?, ?)", [at, f"of {days} days ago"])
        database.commit()
        assert airflow_processes.old_rows(settings, before) == 1
        airflow_processes.remove_old_rows(settings, before)
        events = database.execute("SELECT event FROM log WHERE event LIKE 'of %'").fetchall()
        assert events == [("of 29 days ago",)]
        kept = "SELECT count(*) FROM sqlite_master WHERE name LIKE '_airflow_deleted%'"
        assert database.execute(kept).fetchall() == [(0,)]
    assert airflow_processes.old_rows(settings, before) == 0


def test_the_newest_traceback_of_a_log_ends_where_the_next_event_begins(settings: Settings) -> None:
    assert airflow_processes.parser_traceback(settings) == []
    log = airflow_processes.parser_log(settings)
    log.parent.mkdir(parents=True)
    old = "Traceback (most recent call last):\n  File a\nOld: one\n"
    log.write_text(
        f"{old}2026-11-26T14:15:38Z [info] on\n{old.replace('Old: one', 'New: two')}2026-11-26T14:16Z [info]\n"
    )
    assert airflow_processes.parser_traceback(settings) == ["  File a", "New: two"]


@pytest.mark.platform
def test_what_airflow_refuses_is_a_bad_argument(airflow_alone: Settings) -> None:
    client = airflow_api.Client(airflow_alone)

    with pytest.raises(BadArgument, match="nowhere"):
        client.trigger("nowhere")
    with pytest.raises(BadArgument, match="name"):
        client.trigger("greet", {"name": 5})


@pytest.mark.platform
def test_no_port_but_the_chosen_one_is_opened(airflow_alone: Settings) -> None:
    supervised = [psutil.Process(state.pid) for state in supervisor.state(airflow_alone) if state.pid]
    family = [process for top in supervised for process in (top, *top.children(recursive=True))]
    assert set().union(*map(listening_at, family)) == {("127.0.0.1", airflow_alone.airflow_port)}


def listening_at(process: psutil.Process) -> set[tuple[str, int]]:
    """Returns the addresses; none of a process that has ended meanwhile, as those that parse DAGs do."""
    with contextlib.suppress(psutil.NoSuchProcess):
        listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        return {(connection.laddr.ip, connection.laddr.port) for connection in listening}
    return set()


@pytest.mark.platform
def test_a_killed_scheduler_leaves_no_worker_behind_and_comes_back(
    airflow_alone: Settings, eventually: Eventually
) -> None:
    def scheduler() -> int | None:
        return next(state.pid for state in supervisor.state(airflow_alone) if state.name == "airflow-scheduler")

    killed = scheduler()
    assert killed
    workers = psutil.Process(killed).children(recursive=True)
    os.kill(killed, signal.SIGKILL)

    eventually(lambda: scheduler() not in (None, killed))
    assert [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.platform
def test_preparing_again_is_quick_and_changes_nothing(airflow_alone: Settings) -> None:
    database = airflow_alone.home / "airflow" / "migrated"
    before = database.stat().st_mtime_ns

    airflow_processes.prepare(airflow_alone)

    assert database.stat().st_mtime_ns == before
    assert not (ROOT / "airflow.cfg").exists()
