"""Symptoms of outputs."""

from __future__ import annotations

from collections.abc import Iterator

from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import Case, kind


@kind("failed", "It is tried again each minute; `{twofold} outputs` shows how far its copy is behind.", "outputs")
def output_failed(now: Snapshot) -> Iterator[Case]:
    """Finds outputs that do not go on, or whose receiver has not taken a change for 10 minutes."""
    failed = (o for o in now.outputs if o.has_failed)
    return (Case(o.table, f"{o.table}: the output {o.output} has failed: {o.error}") for o in failed)
