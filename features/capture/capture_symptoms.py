"""Symptoms of captured tables."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import Case, kind


@kind("failed", "`{twofold} recapture {subject}` takes a new snapshot, if changes are lost.", "doctor", watched=True)
def capture_faulty(now: Snapshot) -> Iterator[Case]:
    """Finds captured tables of a database whose changes do not arrive, or lack some."""
    return (Case(c.topic, f"{c.topic}: {c.fault}", c.hint) for c in now.captures if c.fault)
