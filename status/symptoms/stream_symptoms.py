"""Symptoms of processes, of the streams that they run, and of what these work with."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.infra.delta.trim import Limits
from twofold.infra.project.chosen_domains import driver_name
from twofold.infra.text.printable import shown_duration
from twofold.status.parts.snapshot import INGEST, Snapshot
from twofold.status.symptoms.symptom import Case, kind

MISSING = "not supervised"
STALLED_S = 300


@kind("unknown", "`{twofold} up` starts it.", "up", watched=True)
def platform_down(now: Snapshot) -> Iterator[Case]:
    """Finds a platform that is down: what is shown is what was last known."""
    if not now.processes:
        yield Case(None, "The platform is down")


@kind("degraded", "`{twofold} up` starts it; its log says why it ended.", "up", watched=True)
def process_down(now: Snapshot) -> Iterator[Case]:
    """Finds processes that do not run, and those of streams that the supervisor does not know."""
    states: dict[str, str] = {name: MISSING for programs in now.programs.values() for name in programs}
    states |= {process.name: process.state for process in now.processes}
    for name, state in states.items():
        if now.processes and state not in ("RUNNING", "STARTING"):
            yield Case(name, f"{name} is {state}", restarts="" if state == MISSING else name)


@kind("degraded", "`{twofold} up` starts what does not run.", "doctor")
def part_faulty(now: Snapshot) -> Iterator[Case]:
    """Finds parts that do not answer, cannot be read, or refuse: broker, captures, slots, DAGs, webhooks, page, ..."""
    return (Case(part, f"{part}: {fault.message}", fault.hint) for part, fault in now.faults.items())


@kind("failed", "All others go on. Correct what it names, then `{twofold} up`.", "doctor", watched=True)
def query_failed(now: Snapshot) -> Iterator[Case]:
    """Finds queries of streams that cannot start or go on."""
    return (Case(q.full_name, f"{q.full_name} has failed: {q.error}") for q in now.queries if q.error)


@kind("degraded", "If a restart of its driver does not help, its log may say why.", "status", watched=True)
def stalled(now: Snapshot) -> Iterator[Case]:
    """Finds records or versions that wait, though the driver runs, with no micro-batch for 5 minutes."""
    waiting = {q.full_name: f"{q.behind:,} versions of its inputs wait" for q in now.queries if q.behind}
    for domain in dict.fromkeys(topic.name.partition(".")[0] for topic in now.topics):
        if lag := sum(topic.lag or 0 for topic in now.topics if topic.name.startswith(f"{domain}.")):
            waiting[f"{domain}.{INGEST}"] = f"{lag:,} records wait"
    queries = {query.full_name: query for query in now.queries}
    up_s = {process.name: process.uptime_s or 0.0 for process in now.processes}
    for name, waits in waiting.items():
        driver, query = driver_name(name.partition(".")[0]), queries.get(name)
        idle_s = min(up_s.get(driver, 0.0), query.idle_s(now.at) if query else float("inf"))
        if idle_s > STALLED_S and not (query and query.error):
            yield Case(name, f"{name}: {waits}, no micro-batch for {shown_duration(idle_s)}", restarts=driver)


@kind("degraded", "Give the driver more memory, or fewer records per second.", "status", watched=True)
def slow(now: Snapshot) -> Iterator[Case]:
    """Finds rows that become visible later than the table declares as `freshness`, or than 15 minutes."""
    for query in now.queries:
        if (query.freshness_s or 0) > query.fresh_within_s and query.idle_s(now.at) <= STALLED_S:
            seen, limit = shown_duration(query.freshness_s), shown_duration(query.fresh_within_s)
            text = f"rows are visible {seen} after the broker had them; the limit is {limit}"
            yield Case(query.full_name, f"{query.full_name}: {text}")


@kind("degraded", "Start what has stopped, or give it more memory: else it begins again from a snapshot.", "status")
def history_unread(now: Snapshot) -> Iterator[Case]:
    """Finds streams and outputs that leave changes unread for half of the time for which these are kept."""
    readers = [(q.full_name, q.full_name, "its inputs", q.behind, q.behind_s) for q in now.queries]
    readers += [(o.table, f"{o.table}: the output {o.output}", "the table", o.behind, o.behind_s) for o in now.outputs]
    kept_s, most = Limits().held_ms / 1_000, Limits().held_commits
    for table, reader, read, behind, behind_s in readers:
        if (behind_s or 0.0) > kept_s / 2 or (behind or 0) > most / 2:
            yield Case(
                table,
                f"{reader} leaves {behind:,} versions of {read} unread, the first for {shown_duration(behind_s)}; "
                f"after {shown_duration(kept_s)}, or {most:,} versions, it begins from a snapshot",
            )
