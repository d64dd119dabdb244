"""Starts what outputs need, if a table that runs declares one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.console import step
from twofold.infra.project.chosen_domains import declarations_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twofold.infra.process.supervisord import Program
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.registry import Registry


def keeps_copies(registry: Registry) -> bool:
    """Whether the supervised database has the copy of a table."""
    from twofold.tables.declare.outputs.postgres_output import PostgresOutput

    return any(isinstance(output, PostgresOutput) and not output.destination for _, output in registry.outputs())


def copy_programs(settings: Settings, registry: Registry, others: Sequence[Program]) -> list[Program]:
    """Returns the program of the database, ready to be supervised, if copies need it and it is not among others."""
    if not keeps_copies(registry):
        return []
    from twofold.infra.postgres import postgres_server

    if any(program.name == postgres_server.NAME for program in others):
        return []
    postgres_server.prepare(settings)
    return [postgres_server.program(settings)]


def output_programs(settings: Settings, registry: Registry) -> list[Program]:
    """Returns the program that moves outputs on; it changes with the declarations, so that `up` restarts it."""
    from twofold.infra.process.supervisord import Program
    from twofold.infra.process.twofold_command import PROGRAM
    from twofold.outputs.follow.runner import NAME

    if not any(registry.outputs()):
        return []
    return [
        Program(
            name=NAME,
            command=[*PROGRAM, "outputs", "follow"],
            environment={**settings.environment(), "DECLARATIONS": declarations_digest(registry.domains)},
            stage=1,
            start_s=5,
            stop_wait_s=60,
        )
    ]


def ensure_copies(settings: Settings, registry: Registry) -> None:
    """Creates the database of copies, once the supervised server answers, if an output is kept there."""
    if not keeps_copies(registry):
        return
    from twofold.infra.postgres import postgres_server
    from twofold.outputs.targets.open_target import DATABASE

    with step(f"Database {DATABASE}"):
        postgres_server.ensure_database(settings, DATABASE)
