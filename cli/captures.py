"""Starts what captures tables of a database, and says how it is; only where a topic is declared for one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.console import out, print_fault, step
from infra.errors import TwofoldError
from infra.sql.names import POSTGRES

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.capture.debezium_connector import CaptureState
    from infra.process.doctor import Finding
    from infra.process.supervisord import Program
    from infra.settings import Settings
    from tables.declare.registry import Registry


def captures_tables(registry: Registry) -> bool:
    """Whether any topic holds the changes of a table."""
    return any(topic.captures for topic in registry.topics.values())


def capture_programs(settings: Settings, registry: Registry) -> list[Program]:
    """The database and Kafka Connect, ready to be supervised; none where no table is captured."""
    if not captures_tables(registry):
        return []
    from infra.capture import kafka_connect
    from infra.postgres import postgres_server

    kafka_connect.prepare(settings)
    programs = [kafka_connect.program(settings)]
    if settings.supervises_database:
        postgres_server.prepare(settings)
        programs.insert(0, postgres_server.program(settings))
    return programs


def ensure_captures(settings: Settings, registry: Registry, prepare: Callable[[Settings], None] | None = None) -> None:
    """Have every declared capture run; what cannot is said, with what to do, and stops nothing else.

    Tables that the database does not have yet are waited for by `wait_for_tables`.

    Args:
        prepare: called once the database answers, before its tables are captured.
    """
    if not captures_tables(registry):
        return
    from batch.capture.recapture import current
    from infra.capture import kafka_connect
    from infra.capture.debezium_connector import ensure
    from infra.capture.table_catalog import missing_tables
    from infra.delta.lake import Lake
    from infra.errors import TwofoldError
    from infra.postgres import postgres_server
    from tables.declare.captured_topic import captures

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
    """Say which captured tables the database does not have; at a terminal, wait for them and capture them."""
    from infra.capture.table_catalog import missing_tables
    from infra.postgres.database_connection import address
    from tables.declare.captured_topic import captures

    tables = [capture.table for capture in captures(registry)]
    missing = missing_tables(settings, tables)
    if not missing:
        return
    at = address(settings)
    what = f"{', '.join(missing)} in the database {at.dbname} at {at.host}:{at.port}"
    out.print(f"[yellow]![/] Waiting to capture {what}. All else runs.", soft_wrap=True)
    out.print("  [bold]Hint:[/] Create the tables there, then ./twofold up; at a terminal it goes on by itself.")
    if out.is_terminal:
        with step(f"Tables {', '.join(missing)}"):
            while missing_tables(settings, tables):
                time.sleep(1)
        ensure_captures(settings, registry)


def capture_states(settings: Settings, registry: Registry) -> list[CaptureState]:
    """The states of captured tables; where none is declared, no code of theirs is loaded.

    Raises:
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    from tables.declare.captured_topic import captures

    declared = captures(registry)
    if not declared:
        return []
    from batch.capture.lost_changes import changes_fault
    from infra.capture.captured_table import again
    from infra.capture.debezium_connector import state
    from infra.delta.lake import Lake

    states, lake = [], Lake(settings)
    for capture in declared:
        now = state(settings, capture)
        lost = "" if now.fault or capture.is_outbox else changes_fault(lake, capture.topic)
        states.append(replace(now, fault=lost, hint=f"{again(capture.topic)}.") if lost else now)
    return states


def capture_findings(settings: Settings, registry: Registry) -> list[Finding]:
    """The doctor's findings about captured tables; none while the platform is down."""
    from infra.process import supervisor
    from infra.process.doctor import Finding

    if not supervisor.is_running(settings):
        return []
    try:
        states, slots = capture_states(settings, registry), _undeclared_slots(settings, registry)
    except TwofoldError as error:
        hint = error.hint or "./twofold up starts what does not run."
        return [Finding(name="Captures", ok=False, found=error.message, expected="servers that answer", hint=hint)]
    return [
        Finding(
            name=f"Capture {state.topic}",
            ok=not state.fault,
            found=state.fault or f"runs, slot {state.slot}",
            expected="runs, no change lost",
            hint=state.hint,
        )
        for state in states
    ] + [
        Finding(
            name=f"Slot {slot}",
            ok=False,
            found="no topic is declared for it, and the database keeps its log for it",
            expected="a topic",
            hint=f"SELECT pg_drop_replication_slot({POSTGRES.literal(slot)}) gives it up; "
            "its topic cannot continue then.",
        )
        for slot in slots
    ]


def _undeclared_slots(settings: Settings, registry: Registry) -> list[str]:
    """Slots that no topic of any domain declares; none where no domain that runs captures a table."""
    from infra.capture.debezium_connector import undeclared_slots
    from tables.declare.captured_topic import captures
    from tables.declare.registry import load

    return undeclared_slots(settings, captures(load())) if captures(registry) else []
