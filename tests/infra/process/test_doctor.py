"""Each problem is found, named, and has a hint."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.infra.airflow.airflow_service import SERVICE as AIRFLOW
from twofold.infra.kafka.broker_service import SERVICE as BROKER
from twofold.infra.process import doctor, supervisord
from twofold.infra.process.doctor import Finding
from twofold.infra.project.settings import Settings

SERVICES = [BROKER, AIRFLOW]


def finding(settings: Settings, name: str) -> Finding:
    return next(found for found in doctor.examine(settings, SERVICES) if found.name == name)


def test_every_finding_that_is_not_well_says_what_to_do(settings: Settings) -> None:
    findings = doctor.examine(settings, SERVICES)

    assert {"Python", "Java", "Memory", "Disk", "Home", "Packages", "JVM jars", "Supervisor"} < {
        f.name for f in findings
    }
    assert [found.name for found in findings if not found.ok and not found.hint] == []


def test_a_port_that_another_process_holds_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", settings.kafka_port)):
        moved = finding(settings, f"Port {settings.kafka_port}")
        monkeypatch.setenv("TWOFOLD_KAFKA_PORT", str(settings.kafka_port))
        found = finding(settings, f"Port {settings.kafka_port}")

    assert moved.ok
    assert "`up` chooses another" in moved.found
    assert not found.ok
    assert "TWOFOLD_KAFKA_PORT" in found.hint


def test_ports_and_jars_are_looked_at_of_the_services_that_are_needed(settings: Settings) -> None:
    every, airflow = doctor.examine(settings, SERVICES), doctor.examine(settings, [AIRFLOW])
    ports = {port.name: f"Port {port.number(settings)}" for service in SERVICES for port in service.ports}
    assert set(ports) == {"kafka_port", "controller_port", "airflow_port"}
    assert {found.name for found in every if found.name.startswith("Port")} == set(ports.values())
    assert {found.name for found in airflow if found.name.startswith("Port")} == {ports["airflow_port"]}
    expected = [found.expected for found in (*every, *airflow) if found.name == "JVM jars"]
    assert expected == ["the 47 of jars.lock", "the 0 of jars.lock"]


def test_a_missing_java_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    found = finding(settings, "Java")

    assert not found.ok
    assert "17 to 21 is needed" in found.found


def test_a_package_of_another_version_is_found(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        "pytest==0.0.1 \\\n    --hash=sha256:00\n    # via -r requirements.in\n"
        "no-such-package==1.0 \\\n    --hash=sha256:00\n"
        'never-here==1.0 ; sys_platform == "beos" \\\n    --hash=sha256:00\n'
    )

    found = doctor._packages(requirements)

    assert not found.ok
    assert "2 differ" in found.found
    assert "not 0.0.1" in found.found
    assert "no-such-package is missing" in found.found


def test_a_socket_without_a_server_is_found(settings: Settings) -> None:
    path = supervisord.socket_path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    assert not finding(settings, "Supervisor").ok


def test_a_home_that_cannot_be_written_to_is_found(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert not finding(replace(settings, home=tmp_path / "file"), "Home").ok
