"""Kafka Connect as a service: it captures tables of a database, if a topic is declared for one."""

from __future__ import annotations

import time
from collections.abc import Iterator

from twofold.cli.console import out, print_fault, step
from twofold.features.capture import kafka_connect
from twofold.features.capture.captured_topic import captures
from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError
from twofold.infra.process.service import ServerPort, Service, Wait
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry


def _ready(settings: Settings, registry: Registry) -> Iterator[Wait]:
    if captures(registry):
        yield Wait("Captured database and Kafka Connect", lambda: _ensure_captures(settings, registry))


def _ensure_captures(settings: Settings, registry: Registry) -> list[TwofoldError]:
    """Starts every declared capture whose table is there; returns why others cannot start."""
    from twofold.features.capture.debezium_connector import ensure
    from twofold.features.capture.operate.recapture import current
    from twofold.features.capture.table_catalog import missing_tables
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


def wait_for_tables(settings: Settings, registry: Registry) -> None:
    """Prints which captured tables the database lacks; at a terminal, waits for them and captures them."""
    tables = [capture.table for capture in captures(registry)]
    if not tables:
        return
    from twofold.features.capture.table_catalog import missing_tables
    from twofold.infra.postgres.database_connection import address

    missing = missing_tables(settings, tables)
    if not missing:
        return
    at = address(settings)
    what = f"{', '.join(missing)} in the database {at.dbname} at {at.host}:{at.port}"
    out.print(f"[yellow]![/] Waiting to capture {what}. All else runs.", soft_wrap=True)
    out.print(f"  [bold]Hint:[/] Create the tables there, then {COMMAND} up; at a terminal it goes on by itself.")
    if out.is_terminal:
        with step(f"Tables {', '.join(missing)}"):
            while missing_tables(settings, tables):
                time.sleep(1)
        for fault in _ensure_captures(settings, registry):
            print_fault(fault, "All else runs.")


SERVICE = Service[Registry](
    name=kafka_connect.NAME,
    stage="servers",
    needed=lambda _, registry: bool(captures(registry)),
    prepare=kafka_connect.prepare,
    programs=lambda settings, _: [kafka_connect.program(settings)],
    ready=_ready,
    last=wait_for_tables,
    ports=[ServerPort("connect_port", "Kafka Connect", kafka_connect.NAME)],
    jars=["connect", "broker"],  # its log is written by a library of the broker
)
