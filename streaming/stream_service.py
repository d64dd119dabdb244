"""The stream drivers as a service: one for each domain, ready once the tables of the domain are there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from twofold.infra.errors import ProcessFailed
from twofold.infra.process import supervisor
from twofold.infra.process.service import Service, Wait, worker
from twofold.infra.process.supervisord import Program
from twofold.infra.process.twofold_command import PROGRAM
from twofold.infra.project.chosen_domains import declarations_digest, driver_name
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import read
from twofold.tables.declare.registry import Registry

STREAM_READY_S = 600.0
MOST_STARTS = 3


def _programs(settings: Settings, registry: Registry) -> Iterator[Program]:
    for domain in registry.domains:
        command, declared = [*PROGRAM, "stream", domain], declarations_digest([domain])
        yield worker(settings, driver_name(domain), command, declared, start_s=5, stop_wait_s=60)


def _ready(settings: Settings, registry: Registry) -> Iterator[Wait]:
    for domain in registry.domains:
        yield Wait(f"Stream of the domain {domain}", partial(_wait_tables, settings, registry, domain))


def _wait_tables(settings: Settings, registry: Registry, domain: str) -> list[ProcessFailed]:
    """Waits until the driver runs and has created the tables of its domain; returns why queries cannot."""
    from twofold.infra.delta.lake import Lake
    from twofold.tables.refresh.acceptance import is_accepted

    lake = Lake(settings)
    tables = registry.in_order(domain)
    declared = [d.full_name for d in registry.domain_topics(domain)] + [d.full_name for d in tables]
    # The driver refuses these, and reports why.
    changed = {t.full_name for t in tables if lake.exists(t.full_name) and not is_accepted(lake, t, registry)}

    name, deadline = driver_name(domain), time.monotonic() + STREAM_READY_S
    while True:
        process = next((p for p in supervisor.state(settings) if p.name == name), None)
        if process and process.state == "RUNNING":
            failed = _failed(settings, registry, domain, process.uptime_s or 0.0)
            if all(d in failed or (d not in changed and lake.exists(d)) for d in declared):
                return [ProcessFailed(f"{query} has failed: {error.rstrip('.')}.") for query, error in failed.items()]
        if time.monotonic() > deadline or (process and process.starts > MOST_STARTS):
            state = f"{process.state}, started {process.starts} times" if process else "not supervised"
            raise ProcessFailed(f"The stream of {domain} is {state}.", hint=f"See {settings.logs / f'{name}.log'}.")
        time.sleep(0.3)


def _failed(settings: Settings, registry: Registry, domain: str, uptime_s: float) -> dict[str, str]:
    """Maps declared queries that have failed since the domain's driver started, to why; older errors may be fixed."""
    programs, since = {"ingest", *(table.name for table in registry.in_order(domain))}, timedelta(seconds=uptime_s)
    return {
        f"{domain}.{p.query}": p.error
        for p in read(settings, domain)
        if p.query in programs and p.failed_at is not None and p.failed_at >= datetime.now(UTC) - since
    }


SERVICE = Service[Registry](
    name="stream", stage="workers", programs=_programs, ready=_ready, jars=["spark"], loads_code=True
)
