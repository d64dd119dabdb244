"""The supervised database as a service: of captured tables, and of the copies of tables."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.features.outputs.targets.postgres_output import COPIES
from twofold.infra.postgres import postgres_server
from twofold.infra.process.service import ServerPort, Service, Wait
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry


def _uses(settings: Settings, registry: Registry) -> tuple[bool, bool]:
    """Whether tables of the supervised database are captured, and whether it has copies."""
    is_captured = settings.supervises_database and any(topic.captures for topic in registry.topics.values())
    return is_captured, any(out.server == postgres_server.NAME and not out.destination for _, out in registry.outputs())


def _ready(settings: Settings, registry: Registry) -> Iterator[Wait]:
    """Yields the wait for the database of copies; Kafka Connect waits for the captured one."""
    if _uses(settings, registry)[1]:
        yield Wait(f"Database {COPIES}", lambda: postgres_server.ensure_database(settings, COPIES))


def _addresses(settings: Settings, registry: Registry, with_passwords: bool) -> Iterator[tuple[str, str]]:
    is_captured, has_copies = _uses(settings, registry)
    if is_captured or has_copies:
        from twofold.infra.postgres.database_connection import password_file, supervised_address

        at = supervised_address(settings)
        names = [at.dbname] * is_captured + [COPIES] * has_copies
        yield "Database", f"{at.host}:{at.port}, database {' and '.join(names)}"
        yield "", f"user {at.user}, password {at.password if with_passwords else f'in {password_file(settings)}'}"


SERVICE = Service[Registry](
    name=postgres_server.NAME,
    stage="servers",
    needed=lambda settings, registry: any(_uses(settings, registry)),
    prepare=postgres_server.prepare,
    programs=lambda settings, _: [postgres_server.program(settings)],
    ready=_ready,
    ports=[ServerPort("database_port", "the database", postgres_server.NAME)],
    addresses=_addresses,
)
