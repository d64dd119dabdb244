"""The supervised Kafka broker: one node, KRaft, with tiered storage."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from twofold.infra.errors import BrokerUnreachable, ProcessFailed
from twofold.infra.java import java, late_c2
from twofold.infra.kafka.topic_admin import reach
from twofold.infra.process.ports import HOST, require_free
from twofold.infra.process.readiness import until_answered
from twofold.infra.process.supervisord import Program
from twofold.infra.project import jars
from twofold.infra.project.settings import PREFIX, Settings

NAME = "broker"
HEAP = "400m"
FORMAT_TIMEOUT_S = 120

CONSOLE = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSX}{UTC} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# It warns about every setting that belongs to a plugin.
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = error
"""
"""How Kafka's servers log: warnings on the console, in UTC."""
LOGGING = f"""\
{CONSOLE}logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
logger.recovery.name = kafka.log.LogManager
logger.recovery.level = info
"""


def program(settings: Settings) -> Program:
    """Returns the program that the supervisor runs; `prepare` must have been called before."""
    command = [
        str(java()),
        f"-Xmx{HEAP}",
        "-XX:+UseG1GC",
        *late_c2(6),
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        *_kafka(settings, "kafka.Kafka"),
        str(_properties(settings)),
    ]
    return Program(name=NAME, command=command, runs_our_code=False, stage=0, start_s=2, stop_wait_s=30)


def prepare(settings: Settings) -> None:
    """Writes the broker's configuration, and formats its log directory unless that was done before.

    Safe to repeat, also after a crash at any point: a log directory that exists is a formatted one.

    Raises:
        MissingTool: no Java, or jars that cannot be fetched.
        ProcessFailed: Kafka refuses to format; the message holds its output.
    """
    jars.ensure(settings, ["broker"])
    _properties(settings).parent.mkdir(parents=True, exist_ok=True)
    _logging(settings).write_text(LOGGING)
    _properties(settings).write_text(as_properties(properties(settings)))
    if not log_directory(settings).exists():
        _format(settings)


def wait_ready(settings: Settings, timeout_s: float = 180) -> None:
    """Waits until the broker answers.

    Raises:
        BrokerUnreachable: it did not within `timeout_s`.
        PortTaken: the broker of another home answers.
    """

    def connect() -> None:
        with reach(settings, timeout_s=2) as client:
            if settings.supervises_broker and client.describe_cluster()["cluster_id"] != _own_cluster(settings):
                require_free(settings.kafka_port, f"{PREFIX}KAFKA_PORT", "the Kafka broker")

    until_answered(connect, BrokerUnreachable, timeout_s)


def log_directory(settings: Settings) -> Path:
    """Returns the directory of the broker's local log, which holds the records that are not archived yet."""
    return settings.home / "kafka" / "log"


def tiered_directory(settings: Settings) -> Path:
    """Returns the directory in which closed segments of tiered topics are kept forever."""
    return settings.home / "tiered"


def properties(settings: Settings) -> dict[str, object]:
    """Returns the values of the broker's `server.properties`."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{settings.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listeners": f"BROKER://{HOST}:{settings.kafka_port},CONTROLLER://{HOST}:{settings.controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{settings.kafka_port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_directory(settings),
        # After kill -9 the controller waits this long before it admits the broker again; the default is 9 s.
        "broker.session.timeout.ms": 1_500,
        "broker.heartbeat.interval.ms": 500,
        "auto.create.topics.enable": "false",
        "message.max.bytes": 1 << 20,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        # Else a group without members loses its positions after seven days, and reads all again.
        "offsets.retention.minutes": (1 << 31) - 1,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.check.interval.ms": 10_000,
        **_tiering(settings),
    }


def _tiering(settings: Settings) -> dict[str, object]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": tiered_directory(settings),
        "remote.log.metadata.manager.listener.name": "BROKER",
        "rlmm.config.remote.log.metadata.topic.num.partitions": 4,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        # A closed segment is in the archive this long after it was closed; the default is 30 s.
        "remote.log.manager.task.interval.ms": 1_000,
        "remote.log.manager.copier.thread.pool.size": 2,
        "remote.log.manager.expiration.thread.pool.size": 1,
        "remote.log.manager.follower.thread.pool.size": 1,
        "remote.log.reader.threads": 2,
    }


def _format(settings: Settings) -> None:
    """Formats a temporary directory, then renames it: a crash leaves no half-formatted log directory."""
    partial = log_directory(settings).with_name("log.formatting")
    shutil.rmtree(partial, ignore_errors=True)
    configuration = partial.with_suffix(".properties")
    configuration.write_text(as_properties({**properties(settings), "log.dirs": partial}))
    tool = _kafka(settings, "kafka.tools.StorageTool")
    command = [str(java()), "-Xmx128m", *tool, "format", "-t", _cluster_id(), "-c", str(configuration)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
    if ran.returncode != 0:
        raise ProcessFailed(f"Kafka cannot format {partial}: {(ran.stdout + ran.stderr).strip()[-500:]}")
    configuration.unlink()
    partial.rename(log_directory(settings))


def _kafka(settings: Settings, main_class: str) -> list[str]:
    # The archive's jar has a logging configuration that writes to the working directory.
    logging = f"-Dlog4j2.configurationFile={_logging(settings).as_uri()}"
    return [logging, "-cp", f"{settings.jars / 'broker'}/*", main_class]


def _cluster_id() -> str:
    """Generates a random UUID in Kafka's format; it must not look like a command-line option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _own_cluster(settings: Settings) -> str:
    """Returns the id with which the log directory was formatted."""
    lines = (log_directory(settings) / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))


def _properties(settings: Settings) -> Path:
    return settings.home / "kafka" / "server.properties"


def _logging(settings: Settings) -> Path:
    return settings.home / "kafka" / "log4j2.properties"


def as_properties(values: Mapping[str, object]) -> str:
    """Formats values as a Java properties file, one `name=value` per line."""
    return "".join(f"{name}={str(value).replace(chr(92), chr(92) * 2)}\n" for name, value in values.items())
