"""Judges from a snapshot what needs a restart or a person: the stream of a domain, and the whole platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from twofold.infra import COMMAND
from twofold.infra.delta.trim import Limits
from twofold.infra.project.chosen_domains import driver_name
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import shown_duration
from twofold.status.snapshot import QueryState, Snapshot, StreamHealth
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table

BROKER = "broker"
INGEST_QUERY = "ingest"
WELL = ("RUNNING", "STARTING")
"""The states of a process that is well."""
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
    limits_s = {table.name: fresh_within_s(table) for table in registry.in_order(domain)}
    return StreamHealth(
        driver=driver,
        down={name: states[name] for name in programs if states.get(name, "RUNNING") not in WELL},
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
            if is_slow(query, limits_s.get(name, FRESHNESS_S), idle_s[name])
        ],
        lost=[str(gap) for gap in now.open_gaps if gap.topic.startswith(own)],
        captures=[f"{each.topic}: {each.fault}" for each in now.captures if each.fault and each.topic.startswith(own)],
    )


def fresh_within_s(table: Table) -> float:
    """Returns how long after the broker had its records the rows of a table are to be visible."""
    return FRESHNESS_S if table.freshness_ms is None else table.freshness_ms / 1_000


def is_slow(query: QueryState, limit_s: float, idle_s: float) -> bool:
    """Whether rows of a query that works become visible later than they should."""
    return (query.freshness_s or 0) > limit_s and idle_s <= STALLED_S


@dataclass(frozen=True)
class Need:
    """Something that is wrong, in words.

    Attributes:
        name: the topic or table that it is about; None: the platform, or several.
        command: what helps, or shows what does; None: the words say so.
        lasting: a name for it while its words have numbers that change; empty: they have none.
    """

    text: str
    name: str | None = None
    command: str | None = None
    lasting: str = field(default="", compare=False)

    @property
    def symptom(self) -> str:
        """The words by which it is known as the same while it lasts."""
        return self.lasting or self.text


def found_needs(now: Snapshot) -> list[Need]:
    """Returns what is wrong by the facts of a snapshot, in the order of its parts."""
    return [
        *(
            Need(f"{o.table}: the output {o.output} has failed: {o.error}", o.table, f"{COMMAND} outputs")
            for o in now.outputs
            if o.has_failed
        ),
        *(Need(f"{c.topic}: {c.fault}", c.topic, f"{COMMAND} doctor") for c in now.captures if c.fault),
        *(Need(str(gap), gap.topic, f"{COMMAND} acknowledge") for gap in now.open_gaps),
        *(Need(f"{p.name} is {p.state}", None, f"{COMMAND} up") for p in now.processes if p.state not in WELL),
        *(
            Need(f"{q.domain}.{q.query} has failed: {q.error}", _table_of(q), f"{COMMAND} doctor")
            for q in now.queries
            if q.error
        ),
        *_history_needs(now),
        *(
            Need(
                f"{t.name}: audits found {t.audit.unexplained:,} rows that nothing explains",
                t.name,
                f"{COMMAND} reconcile {t.name} --repair",
                f"{t.name} has rows that nothing explains",
            )
            for t in now.tables
            if t.audit and t.audit.unexplained
        ),
    ]


def _history_needs(now: Snapshot) -> Iterator[Need]:
    """Yields the readers of tables that leave changes unread for half of the time for which these are kept."""
    readers = [(_table_of(q), f"{q.domain}.{q.query}", "its inputs", q.behind, q.behind_s) for q in now.queries]
    readers += [(o.table, f"{o.table}: the output {o.output}", "the table", o.behind, o.behind_s) for o in now.outputs]
    limits = Limits()
    for table, reader, read, behind, behind_s in readers:
        age_s, kept_s = behind_s or 0.0, limits.held_ms / 1_000
        if age_s > kept_s / 2 or (behind or 0) > limits.held_commits / 2:
            yield Need(
                f"{reader} leaves {behind:,} versions of {read} unread, the first for {shown_duration(age_s)}; "
                f"after {shown_duration(kept_s)}, or {limits.held_commits:,} versions, it begins from a snapshot",
                table,
                f"{COMMAND} doctor",
                f"{reader} may lose the history that it has not read",
            )


def needs_of(now: Snapshot) -> list[Need]:
    """Returns all that is wrong: what `status` prints, and what the watch of each stream fails for, with what helps."""
    known = {need.text: need for need in found_needs(now)}
    streams = [need for domain in now.health for need in _stream_needs(domain, now)] if now.processes else []
    return [*(known.get(problem, Need(problem)) for problem in now.problems), *streams]


def _stream_needs(domain: str, now: Snapshot) -> Iterator[Need]:
    health = now.health[domain]
    yield from (Need(f"{name} is not supervised", None, f"{COMMAND} up") for name in health.missing)
    for kind, texts in (("stalled", health.stalled), ("slow", health.slow)):
        for text in texts:
            name = f"{domain}.{text.partition(':')[0]}"
            is_table = any(table.name == name for table in now.tables)
            yield Need(f"{domain}.{text}", name if is_table else None, lasting=f"{name} is {kind}")


def _table_of(query: QueryState) -> str | None:
    return None if query.query == INGEST_QUERY else f"{query.domain}.{query.query}"


def _waiting(now: Snapshot, domain: str, queries: Mapping[str, QueryState]) -> dict[str, str]:
    """Returns per query what it has not read yet."""
    lag = sum(topic.lag or 0 for topic in now.topics if topic.name.startswith(f"{domain}."))
    waiting = {"ingest": f"{lag:,} records wait"} if lag else {}
    return waiting | {name: f"{query.behind} versions wait" for name, query in queries.items() if query.behind}
