"""Two platforms of one machine do not meet: a port that no setting names is chosen once, and kept by the home."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.infra.airflow.airflow_service import SERVICE as AIRFLOW
from twofold.infra.errors import BadSetting, PortTaken
from twofold.infra.kafka.broker_service import SERVICE as BROKER
from twofold.infra.process import supervisord
from twofold.infra.process.ports import is_free
from twofold.infra.process.server_ports import own_ports, require_free_ports
from twofold.infra.process.service import ports_of
from twofold.infra.project.home_format import keep_format
from twofold.infra.project.settings import Settings, given_settings, ports_file

PORTS = ports_of([BROKER])


def started(settings: Settings) -> Settings:
    """The settings of a platform that has come up."""
    with own_ports(settings, PORTS) as own:
        keep_format(own.home)
    return own


def kept(settings: Settings) -> dict[str, int]:
    return dict(json.loads(ports_file(settings.home).read_text()))


def of_the_home(settings: Settings) -> Settings:
    """What another process takes for the settings."""
    return Settings.from_environment({"TWOFOLD_HOME": str(settings.home)})


def test_a_port_that_is_taken_is_chosen_once_and_kept(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.kafka_port)):
        own = started(settings)
    assert own.kafka_port != settings.kafka_port
    assert is_free(own.kafka_port)
    assert own.controller_port == settings.controller_port
    assert kept(settings) == {"kafka_port": own.kafka_port, "controller_port": own.controller_port}
    assert of_the_home(settings).kafka_port == own.kafka_port
    assert started(settings).kafka_port == own.kafka_port, "also once the usual one is free"


def test_the_environment_and_the_file_come_before_a_kept_port(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(settings)
    home = {"TWOFOLD_HOME": str(settings.home)}
    given = given_settings({**home, "TWOFOLD_KAFKA_PORT": "9092"})
    assert (given["kafka_port"].value, given["kafka_port"].origin) == (9092, "TWOFOLD_KAFKA_PORT")
    assert given["controller_port"].origin == str(ports_file(settings.home))
    (tmp_path / "twofold.toml").write_text("[settings]\ncontroller_port = 9093\n")
    monkeypatch.setenv("TWOFOLD_PROJECT", str(tmp_path))
    assert Settings.from_environment(home).controller_port == 9093


def test_a_named_port_is_neither_moved_nor_kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_KAFKA_PORT", str(settings.kafka_port))
    with socket.create_server(("127.0.0.1", settings.kafka_port)):
        own = started(settings)
        assert (own.kafka_port, kept(own)) == (settings.kafka_port, {"controller_port": settings.controller_port})
        with pytest.raises(PortTaken, match=r"TWOFOLD_KAFKA_PORT=<port>\."):
            require_free_ports(own, PORTS)


def test_a_kept_port_that_is_taken_later_is_refused_until_it_is_forgotten(settings: Settings) -> None:
    own = started(settings)
    with socket.create_server(("127.0.0.1", own.kafka_port)):
        assert started(settings) == own
        with pytest.raises(PortTaken) as refused:
            require_free_ports(own, PORTS)
        assert f"without {ports_file(own.home)}, `up` chooses" in str(refused.value)
        ports_file(own.home).unlink()
        assert started(settings).kafka_port != own.kafka_port


def test_a_home_of_before_keeps_the_defaults(settings: Settings) -> None:
    supervisord.write_configuration(settings, [])
    with socket.create_server(("127.0.0.1", settings.kafka_port)):
        for _ in range(2):
            assert started(settings) == settings


def test_a_server_that_is_new_in_a_home_gets_a_port_then(settings: Settings) -> None:
    started(settings)
    ports = ports_of([BROKER, AIRFLOW])
    with socket.create_server(("127.0.0.1", settings.airflow_port)), own_ports(settings, ports) as own:
        pass
    assert own.airflow_port != settings.airflow_port
    assert kept(own)["airflow_port"] == own.airflow_port
    assert own.kafka_port == settings.kafka_port


def test_platforms_that_start_together_choose_other_ports(settings: Settings, tmp_path: Path) -> None:
    """No server listens yet; a server does not meet the mark."""
    with own_ports(settings, PORTS) as own:
        other = started(replace(settings, home=tmp_path / "other"))
        assert {own.kafka_port, own.controller_port}.isdisjoint({other.kafka_port, other.controller_port})
        with socket.create_server(("127.0.0.1", own.kafka_port)):
            pass
    with own_ports(settings, PORTS):  # a kept port is marked, too
        assert started(replace(settings, home=tmp_path / "third")).kafka_port != own.kafka_port


@pytest.mark.parametrize("text", ["{", "3", '["kafka_port"]'])
def test_a_file_of_ports_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    ports_file(tmp_path).write_text(text)
    with pytest.raises(BadSetting, match=rf"{ports_file(tmp_path)}: .*"):
        Settings.from_environment({"TWOFOLD_HOME": str(tmp_path)})
