"""The supervised Kafka Connect worker, in which Debezium's connectors run."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from twofold.infra import COMMAND
from twofold.infra.errors import ConnectUnreachable, ProcessFailed
from twofold.infra.java import java
from twofold.infra.kafka.broker import CONSOLE, as_properties
from twofold.infra.process.ports import HOST
from twofold.infra.process.readiness import until_answered
from twofold.infra.process.supervisord import Program
from twofold.infra.project import jars
from twofold.infra.project.settings import Settings

NAME = "connect"
HEAP = "400m"
TIMEOUT_S = 10.0
# slf4j without a backend prints one line and nothing else; the broker's jars hold log4j.
LOGGING = f"""\
{CONSOLE}logger.debezium.name = io.debezium
logger.debezium.level = info
"""
_PASSWORD = "database-password"
_LOGGING_JARS = ("log4j-api", "log4j-core", "log4j-slf4j-impl")


def program(settings: Settings) -> Program:
    """Returns the program that the supervisor runs; `prepare` must have been called before."""
    places = [f"{settings.jars / 'connect'}/*"]
    places += [str(path) for name in _LOGGING_JARS for path in (settings.jars / "broker").glob(f"{name}-[0-9]*.jar")]
    command = [
        str(java()),
        f"-Xmx{HEAP}",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        # Ranges of times are printed in the zone of the process.
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={_logging(settings).as_uri()}",
        "-cp",
        ":".join(places),
        "org.apache.kafka.connect.cli.ConnectDistributed",
        str(_properties(settings)),
    ]
    return Program(name=NAME, command=command, runs_our_code=False, stage=1, start_s=3, stop_wait_s=20)


def prepare(settings: Settings) -> None:
    """Writes the worker's configuration, and the captured database's password, to which connectors refer.

    Raises:
        MissingTool: no Java, or jars that cannot be fetched.
    """
    from twofold.infra.postgres.database_connection import address

    jars.ensure(settings, ["connect", "broker"])  # its log is written by a library of the broker
    _properties(settings).parent.mkdir(parents=True, exist_ok=True)
    _logging(settings).write_text(LOGGING)
    _properties(settings).write_text(as_properties(properties(settings)))
    secret = _secrets(settings) / _PASSWORD
    secret.parent.mkdir(exist_ok=True, mode=0o700)
    secret.touch(mode=0o600)
    secret.write_text(address(settings).password)


def password_reference(settings: Settings) -> str:
    """Returns the placeholder for the password in a connector's configuration, which Connect stores and shows."""
    return f"${{dir:{_secrets(settings)}:{_PASSWORD}}}"


def properties(settings: Settings) -> dict[str, object]:
    """Returns the worker's configuration: its state is in topics of the broker, not on this machine."""
    storage = {
        f"{kind}.storage.{name}": value
        for kind in ("config", "offset", "status")
        for name, value in {"topic": f"_connect_{kind}", "replication.factor": 1}.items()
    }
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "group.id": "twofold-connect",
        "listeners": f"http://{HOST}:{settings.connect_port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        **storage,
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "plugin.discovery": "service_load",
        "config.providers": "dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": str(_secrets(settings)),
        "offset.flush.interval.ms": 1_000,
        # One worker: there is nothing to wait for when it is back, but that the killed one is known to be gone.
        "scheduled.rebalance.max.delay.ms": 0,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_500,
        "producer.acks": "all",
        "producer.enable.idempotence": "true",
        "producer.linger.ms": 5,
        "producer.compression.type": "lz4",
    }


def wait_ready(settings: Settings, timeout_s: float = 180) -> None:
    """Waits until the worker answers and accepts connectors.

    Raises:
        ConnectUnreachable: it did not within `timeout_s`.
    """

    def ask_connectors() -> None:
        # The interface is there before the worker has joined its group.
        if ask(settings, "GET", "/connectors") is None:
            raise ConnectUnreachable(
                "Kafka Connect takes no connectors yet.", hint=f"See {settings.logs / f'{NAME}.log'}."
            )

    until_answered(ask_connectors, ConnectUnreachable, timeout_s)


def ask(settings: Settings, method: str, path: str, body: object = None) -> Any:
    """Calls Connect's REST API; returns None for an empty answer or if the resource does not exist.

    Raises:
        ConnectUnreachable: it does not answer, or cannot yet. Retryable.
        ProcessFailed: it refuses; the message holds its answer.
    """
    request = urllib.request.Request(
        f"http://{HOST}:{settings.connect_port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            text = answer.read()
            return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        message = error.read().decode(errors="replace")
        if error.code == 404 and method == "GET":
            return None
        # A worker that joins its group answers so.
        if error.code in (404, 409, 500, 503) and not message.lstrip().startswith('{"error_code":400'):
            raise ConnectUnreachable(f"Kafka Connect cannot do it now: {message[-500:]}") from None
        raise ProcessFailed(f"Kafka Connect refuses {method} {path}: {message[-800:]}") from None
    except OSError as error:
        raise ConnectUnreachable(
            f"Kafka Connect at {HOST}:{settings.connect_port} does not answer: {error}",
            hint=f"{COMMAND} up starts it; {settings.logs / f'{NAME}.log'} may say why.",
        ) from None


def _properties(settings: Settings) -> Path:
    return settings.home / "connect" / "connect.properties"


def _secrets(settings: Settings) -> Path:
    return settings.home / "connect" / "secrets"


def _logging(settings: Settings) -> Path:
    return settings.home / "connect" / "log4j2.properties"
