"""Starts what captures tables of a database, only where a topic is declared for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.console import print_fault, step

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.process.supervisor import Program
    from infra.settings import Settings
    from tables.engine.declarations.registry import Registry


def captures_tables(registry: Registry) -> bool:
    """Whether any topic holds the changes of a table."""
    return any(topic.captures for topic in registry.topics.values())


def capture_programs(settings: Settings, registry: Registry) -> list[Program]:
    """The database and Kafka Connect, ready to be supervised; none where no table is captured."""
    if not captures_tables(registry):
        return []
    from infra.capture import kafka_connect, postgres_server

    kafka_connect.prepare(settings)
    programs = [kafka_connect.program(settings)]
    if settings.supervises_database:
        postgres_server.prepare(settings)
        programs.insert(0, postgres_server.program(settings))
    return programs


def ensure_captures(settings: Settings, registry: Registry, prepare: Callable[[Settings], None] | None = None) -> None:
    """Have every declared capture run; what cannot is said, with what to do, and stops nothing else.

    Args:
        prepare: called once the database answers, before its tables are captured.
    """
    if not captures_tables(registry):
        return
    from batch.recapture import current
    from infra.capture import kafka_connect, postgres_server
    from infra.capture.debezium_connector import ensure
    from infra.errors import TwofoldError
    from tables.engine.capture.captured_topic import captures
    from tables.engine.delta.lake import Lake

    lake = Lake(settings)
    failed: list[TwofoldError] = []
    with step("Captured database and Kafka Connect"):
        postgres_server.wait_ready(settings)
        if prepare is not None:
            prepare(settings)
        kafka_connect.wait_ready(settings)
        for capture in captures(registry):
            try:
                ensure(settings, current(settings, lake, capture))
            except TwofoldError as error:
                failed.append(error)
    for fault in failed:
        print_fault(fault, "All else runs.")
