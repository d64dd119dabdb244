"""The process that moves outputs on as a service."""

from __future__ import annotations

from twofold.infra.process.service import Service, worker
from twofold.infra.process.supervisord import Program
from twofold.infra.process.twofold_command import PROGRAM
from twofold.infra.project.chosen_domains import declarations_digest
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry


def _programs(settings: Settings, registry: Registry) -> list[Program]:
    declared = declarations_digest(registry.domains)
    return [worker(settings, "outputs", [*PROGRAM, "outputs", "follow"], declared, start_s=5, stop_wait_s=60)]


SERVICE = Service[Registry](
    name="outputs",
    stage="workers",
    needed=lambda _, registry: any(registry.outputs()),
    programs=_programs,
    loads_code=True,
)
