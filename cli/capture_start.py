"""Starts the capture of tables of a database, if a topic is declared for one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from twofold.cli.console import out, print_fault, step
from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from twofold.infra.process.supervisord import Program
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import Registry


def captures_tables(registry: Registry) -> bool:
    """Whether any topic holds the changes of a table."""
    return any(topic.captures for topic in registry.topics.values())


def capture_programs(settings: Settings, registry: Registry) -> list[Program]:
    """Returns the programs of the database and Kafka Connect, ready to be supervised; none if no table is captured."""
    if not captures_tables(registry):
        return []
    from twofold.infra.capture import kafka_connect
    from twofold.infra.postgres import postgres_server

    kafka_connect.prepare(settings)
    programs = [kafka_connect.program(settings)]
    if settings.supervises_database:
        postgres_server.prepare(settings)
        programs.insert(0, postgres_server.program(settings))
    return programs


def ensure_captures(settings: Settings, registry: Registry, prepare: Callable[[Settings], None] | None = None) -> None:
    """Starts every declared capture; prints the ones that cannot start, and what to do; they stop nothing else.

    Tables that the database does not have yet are waited for by `wait_for_tables`.

    Args:
        prepare: called once the database answers, before its tables are captured.
    """
    if not captures_tables(registry):
        return
    from twofold.batch.capture.recapture import current
    from twofold.infra.capture import kafka_connect
    from twofold.infra.capture.debezium_connector import ensure
    from twofold.infra.capture.table_catalog import missing_tables
    from twofold.infra.delta.lake import Lake
    from twofold.infra.errors import TwofoldError
    from twofold.infra.postgres import postgres_server
    from twofold.tables.declare.sources.captured_topic import captures

    lake = Lake(settings)
    failed: list[TwofoldError] = []
    with step("Captured database and Kafka Connect"):
        postgres_server.wait_ready(settings)
        if prepare is not None:
            prepare(settings)
        kafka_connect.wait_ready(settings)
        declared = captures(registry)
        missing = missing_tables(settings, [capture.table for capture in declared])
        for capture in declared:
            if capture.table in missing:
                continue
            try:
                ensure(settings, current(settings, lake, capture))
            except TwofoldError as error:
                failed.append(error)
    for fault in failed:
        print_fault(fault, "All else runs.")


def wait_for_tables(settings: Settings, registry: Registry) -> None:
    """Prints which captured tables the database lacks; at a terminal, waits for them and captures them."""
    if not captures_tables(registry):
        return
    from twofold.infra.capture.table_catalog import missing_tables
    from twofold.infra.postgres.database_connection import address
    from twofold.tables.declare.sources.captured_topic import captures

    tables = [capture.table for capture in captures(registry)]
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
        ensure_captures(settings, registry)
