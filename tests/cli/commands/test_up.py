"""What `up` runs, and what it reports of streams that fail while all others run."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.tables.declared import written
from twofold.cli.commands.platform_commands import print_addresses
from twofold.cli.platform_start import _ensure_topics, _print_moved, _print_upgrade
from twofold.features.capture.operate.capture_states import capture_states, require_topics_of_slots
from twofold.infra.airflow.airflow_processes import passwords
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadSetting, TryAgain
from twofold.infra.kafka.record_producer import producing
from twofold.infra.postgres.database_connection import password
from twofold.infra.process import supervisord
from twofold.infra.process.server_ports import own_ports
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.process.supervisord import Program
from twofold.infra.project.chosen_domains import choose_domains
from twofold.infra.project.home_format import version
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_service import SERVICE as SPARK
from twofold.status.observer import Observer
from twofold.streaming.query.progress import Progress, write
from twofold.tables.declare.registry import load, running
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.lost_offsets import Gap


def test_an_unknown_domain_is_refused_before_anything_is_chosen(cli: Cli, home: Path) -> None:
    ran = cli("up", "shop", "flihgts")
    assert (ran.code, ran.err) == (2, "Error: There is no domain 'flihgts'.\nHint: The domains are flights, shop.\n")
    assert not home.exists()


def test_status_is_of_what_runs_and_names_what_does_not(cli: Cli, home: Path) -> None:
    choose_domains(Settings(home=home), ["shop"])
    ran = cli("status")
    assert "shop.carts" in ran.out
    assert ran.out.endswith("Not run: flights. `./twofold up shop flights` runs all.\n")
    found = json.loads(cli("status", "--json").out)
    assert found["programs"] == {"shop": ["broker", "stream-shop"]}
    assert {state["name"].partition(".")[0] for state in (*found["topics"], *found["tables"])} == {"shop"}


def test_status_leaves_out_queries_of_a_domain_that_is_not_run(cli: Cli, home: Path) -> None:
    settings = Settings(home=home)
    for domain in ("flights", "shop"):
        write(settings, Progress(domain=domain, query="ingest", error=f"{domain} fails", failed_at=datetime.now(UTC)))
    every = cli("status", "--json").document
    assert (every["not_run"], [query["domain"] for query in every["queries"]]) == ([], ["flights", "shop"])
    choose_domains(settings, ["flights"])
    some = cli("status", "--json").document
    assert (some["not_run"], [query["domain"] for query in some["queries"]]) == (["shop"], ["flights"])
    assert [symptom["subject"] for symptom in some["symptoms"]] == ["flights.ingest", None]


def test_lost_records_of_a_domain_that_is_not_run_fail_no_status(cli: Cli, home: Path) -> None:
    settings, lake = Settings(home=home), Lake(Settings(home=home))
    lost_offsets.ensure(lake)
    lost_offsets.record(
        lake,
        [Gap(topic="shop.orders", partition=0, start=3, end=5, recorded_at=datetime.now(UTC), why="gone", log="a")],
    )
    assert cli("status").code == 1
    choose_domains(settings, ["flights"])
    assert cli("status").code == 0
    assert Observer(settings, running(settings)).snapshot().gaps == []


def test_no_database_is_asked_that_no_chosen_domain_captures(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", connect_port=1, database_port=2)
    looks = [
        partial(require_topics_of_slots, settings),
        lambda registry: capture_states(Lake(settings), registry, datetime.now(UTC)),
    ]
    for look in looks:
        assert not look(load().restricted_to(["flights"]))
        with pytest.raises(TryAgain):
            look(load().restricted_to(["shop"]))


def test_commands_without_names_are_of_the_chosen_domains(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(_: Settings, names: list[str], *__: object, **___: object) -> list[object]:
        asked.append(names)
        return []

    monkeypatch.setattr("twofold.batch.reconcile.reconcile", run)
    monkeypatch.setattr("twofold.batch.quality_check.quality", run)
    assert [cli("reconcile").code, cli("quality").code] == [0, 0]
    choose_domains(Settings(home=home), ["shop"])
    assert [cli("reconcile").code, cli("quality").code] == [0, 0]
    shop = [table.full_name for table in load().in_order("shop")]
    assert asked == [[], [], ["shop"], shop]


def test_up_says_which_ports_it_chose_and_settings_where_they_are_from(
    cli: Cli, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=home)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = replace(settings, spark_port=taken.getsockname()[1])
        with own_ports(usual, SPARK.ports) as own:
            _print_moved(usual, own)
            _print_moved(own, own)
    assert capsys.readouterr().out.startswith(
        f"✓ The usual ports are taken, so these are used: spark_port {own.spark_port} "
    )
    said = cli("settings", "--json").document
    assert said["spark_port"] == {"value": str(own.spark_port), "from": str(home / "ports.json")}
    assert said["kafka_port"]["from"] == "TWOFOLD_KAFKA_PORT"
    assert said["connect_port"]["from"] == "default"


def test_up_says_what_another_version_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=tmp_path / "home")
    driver = ProcessState(name="stream-plant", state="RUNNING", pid=7, uptime_s=60.0, starts=1, detail="")
    processes = [replace(driver, name="broker"), driver, replace(driver, name="spark", pid=None)]
    programs = [Program(name="broker", command=["true"], runs_our_code=False)]
    programs += [Program(name=name, command=["true"]) for name in ("stream-plant", "spark")]
    monkeypatch.setattr("twofold.infra.process.supervisor.state", lambda _: processes)
    monkeypatch.setattr("twofold.infra.process.supervisord.version", lambda: "0.1.9")
    supervisord.write_configuration(settings, programs)
    _print_upgrade(settings)
    assert capsys.readouterr().out == ""

    monkeypatch.undo()
    monkeypatch.setattr("twofold.infra.process.supervisor.state", lambda _: processes)
    _print_upgrade(settings)
    assert capsys.readouterr().out.startswith(f"Twofold 0.1.9 -> {version()}: restarts stream-plant.\n")
    monkeypatch.setattr("twofold.infra.process.supervisor.state", lambda _: [])
    _print_upgrade(settings)
    assert capsys.readouterr().out.startswith(f"Twofold 0.1.9 -> {version()}.\n")


@pytest.mark.platform
def test_up_makes_the_keys_of_persons_once(broker: Settings, home: Path, tmp_path: Path) -> None:
    text = '''
        """Logins."""
        from twofold import Topic, personal
        TOPIC = Topic(
            schema={"customer": "string", "at": "timestamp", "mail": personal("customer")},
            event_time="at", message_key="customer", dedup_keys=["customer"],
        )
        '''
    registry = load(written(tmp_path / "tables", {"up/logins.py": text})).require_sound()
    settings = Settings(home=home, bootstrap=broker.bootstrap_servers)
    _ensure_topics(settings, registry)
    made = settings.key_of_keys_file.read_text()
    _ensure_topics(settings, registry)
    assert settings.key_of_keys_file.read_text() == made
    with producing(settings, outage_s=60) as producer:
        producer.send("up.logins", b"{}").get()
    settings.keys_file.unlink()
    with pytest.raises(BadSetting, match=r"up\.logins: there are records"):
        _ensure_topics(settings, registry)
    assert not settings.keys_file.exists()


@pytest.mark.parametrize("are_shown", [False, True])
def test_passwords_are_printed_when_asked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], are_shown: bool
) -> None:
    monkeypatch.setattr("twofold.cli.commands.platform_commands.out._width", 400)
    settings = Settings(home=tmp_path, airflow_users="vera:viewer", airflow_password="sesame")
    print_addresses(settings, load(), with_passwords=are_shown)
    printed = capsys.readouterr().out
    secrets = {*passwords(settings).values(), password(settings)}
    assert {secret in printed for secret in secrets} == {are_shown}
    vera, database = tmp_path / "airflow" / "secrets" / "vera.password", tmp_path / "database-password"
    for place in ("as TWOFOLD_AIRFLOW_PASSWORD has it", f"in {vera}, viewer", f"in {database}"):
        assert (f"password {place}" in printed) is not are_shown
    assert vera.read_text().strip() in secrets
