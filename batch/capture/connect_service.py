"""Kafka Connect as a service: it captures tables of a database, if a topic is declared for one."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.infra.capture import kafka_connect
from twofold.infra.errors import TwofoldError
from twofold.infra.process.service import ServerPort, Service, Wait
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.sources.captured_topic import captures


def _ready(settings: Settings, registry: Registry) -> Iterator[Wait]:
    if captures(registry):
        yield Wait("Captured database and Kafka Connect", lambda: _ensure_captures(settings, registry))


def _ensure_captures(settings: Settings, registry: Registry) -> list[TwofoldError]:
    """Starts every declared capture whose table is there; returns why others cannot start."""
    from twofold.batch.capture.recapture import current
    from twofold.infra.capture.debezium_connector import ensure
    from twofold.infra.capture.table_catalog import missing_tables
    from twofold.infra.delta.lake import Lake
    from twofold.infra.postgres import postgres_server

    postgres_server.wait_ready(settings)
    kafka_connect.wait_ready(settings)
    lake, declared, faults = Lake(settings), captures(registry), list[TwofoldError]()
    missing = missing_tables(settings, [capture.table for capture in declared])
    for capture in declared:
        try:
            if capture.table not in missing:
                ensure(settings, current(settings, lake, capture))
        except TwofoldError as error:
            faults.append(error)
    return faults


SERVICE = Service[Registry](
    name=kafka_connect.NAME,
    stage="servers",
    needed=lambda _, registry: bool(captures(registry)),
    prepare=kafka_connect.prepare,
    programs=lambda settings, _: [kafka_connect.program(settings)],
    ready=_ready,
    ports=[ServerPort("connect_port", "Kafka Connect", kafka_connect.NAME)],
    jars=["connect", "broker"],  # its log is written by a library of the broker
)
