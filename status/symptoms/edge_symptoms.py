"""Symptoms of what the platform works with: servers, captured databases, receivers of outputs, a proxy."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import Case, kind


@kind("degraded", "`{twofold} up` starts what does not run.", "doctor")
def part_faulty(now: Snapshot) -> Iterator[Case]:
    """Finds parts that do not answer, cannot be read, or refuse: broker, captures, slots, DAGs, webhooks, page, ..."""
    return (Case(part, f"{part}: {fault.message}", fault.hint) for part, fault in now.faults.items())


@kind("failed", "`{twofold} recapture {subject}` takes a new snapshot, if changes are lost.", "doctor", watched=True)
def capture_faulty(now: Snapshot) -> Iterator[Case]:
    """Finds captured tables of a database whose changes do not arrive, or lack some."""
    return (Case(c.topic, f"{c.topic}: {c.fault}", c.hint) for c in now.captures if c.fault)


@kind("failed", "It is tried again each minute; `{twofold} outputs` shows how far its copy is behind.", "outputs")
def output_failed(now: Snapshot) -> Iterator[Case]:
    """Finds outputs that do not go on, or whose receiver has not taken a change for 10 minutes."""
    failed = (o for o in now.outputs if o.has_failed)
    return (Case(o.table, f"{o.table}: the output {o.output} has failed: {o.error}") for o in failed)
