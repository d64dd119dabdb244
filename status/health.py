"""Judges from a snapshot whether the stream of a domain needs a restart or a person."""

from __future__ import annotations

from collections.abc import Mapping

from infra.chosen_domains import driver_name
from infra.settings import Settings
from status.snapshot import QueryState, Snapshot, StreamHealth
from tables.declare.registry import Registry

BROKER = "broker"
STALLED_S = 300
"""Records or versions wait, and no micro-batch was finished for this long."""
FRESHNESS_S = 900
"""Rows become visible this long after the broker had them; tables may declare another limit."""


def stream_health(now: Snapshot, domain: str, settings: Settings, registry: Registry) -> StreamHealth:
    """Judges the stream of one domain."""
    driver, own = driver_name(domain), f"{domain}."
    states = {process.name: process.state for process in now.processes}
    programs = [BROKER, driver] if settings.supervises_broker else [driver]
    queries = {query.query: query for query in now.queries if query.domain == domain}
    waiting = _waiting(now, domain, queries)
    failed = {name: query.error for name, query in queries.items() if query.error}
    idle_s = {name: (now.at - query.updated_at).total_seconds() for name, query in queries.items()}
    is_long_up = any(p.name == driver and (p.uptime_s or 0) > STALLED_S for p in now.processes)
    freshness_s = {t.name: t.freshness_ms / 1_000 for t in registry.in_order(domain) if t.freshness_ms is not None}
    return StreamHealth(
        driver=driver,
        down={name: states[name] for name in programs if states.get(name, "RUNNING") not in ("RUNNING", "STARTING")},
        missing=[name for name in programs if name not in states],
        stalled=[
            f"{name}: {waits}, no micro-batch for {STALLED_S} s"
            for name, waits in waiting.items()
            if is_long_up and name not in failed and idle_s.get(name, STALLED_S + 1) > STALLED_S
        ],
        failed=[f"{name} has failed: {error}" for name, error in failed.items()],
        slow=[
            f"{name}: rows are visible {query.freshness_s:.0f} s after the broker had them"
            for name, query in queries.items()
            if (query.freshness_s or 0) > freshness_s.get(name, FRESHNESS_S) and idle_s[name] <= STALLED_S
        ],
        lost=[str(gap) for gap in now.open_gaps if gap.topic.startswith(own)],
        captures=[f"{each.topic}: {each.fault}" for each in now.captures if each.fault and each.topic.startswith(own)],
    )


def _waiting(now: Snapshot, domain: str, queries: Mapping[str, QueryState]) -> dict[str, str]:
    """Returns per query what it has not read yet."""
    lag = sum(topic.lag or 0 for topic in now.topics if topic.name.startswith(f"{domain}."))
    waiting = {"ingest": f"{lag:,} records wait"} if lag else {}
    return waiting | {name: f"{query.behind} versions wait" for name, query in queries.items() if query.behind}
