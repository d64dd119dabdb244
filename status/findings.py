"""Findings of the doctor about declarations and streams."""

from __future__ import annotations

from infra.delta.lake import Lake
from infra.process.doctor import Finding
from infra.settings import Settings
from status.observer import declared_progress
from tables.declare.registry import Registry
from tables.refresh.acceptance import live_unproved, refused


def declarations_finding(lake: Lake, registry: Registry) -> Finding:
    """Looks for faults in the files under tables/."""
    faults = refused(lake, registry).values()
    return Finding(
        name="Declarations",
        ok=not faults,
        found="; ".join([*(f.message for f in faults), *live_unproved(lake, registry).values()]) or "without a fault",
        expected="files that can be loaded",
        hint=next((fault.hint for fault in faults if fault.hint), "Correct the file, then `./twofold up`."),
    )


def streams_finding(settings: Settings, registry: Registry) -> Finding:
    """Looks for queries that have failed, of all drivers."""
    failed = [f"{p.domain}.{p.query}: {p.error}" for p in declared_progress(settings, registry) if p.error]
    return Finding(
        name="Streams",
        ok=not failed,
        found="; ".join(failed) or "none has failed",
        expected="none has failed",
        hint="Each is started again automatically once a minute; `./twofold up` loads a corrected file.",
    )
