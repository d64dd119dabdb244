"""Two snapshots that have each kind of symptom once: of a platform that runs, and of one that is down."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from twofold.features.page.tests.small_platform import (
    AUDIT,
    BROKEN,
    DAYS,
    HOURS,
    NOW,
    READINGS,
    process,
    query,
    snapshot,
    table,
)
from twofold.status.parts.snapshot import CaptureState, Fault, OutputReport, Snapshot
from twofold.tables.refresh.events.lost_offsets import Gap

LONG_AGO = NOW - timedelta(minutes=10)
WELL = [query("ingest"), query("hours"), query("days"), query("broken")]
GAP = Gap(topic=READINGS, partition=0, start=4, end=6, recorded_at=NOW, why="gone")
CAPTURE = CaptureState(
    topic=READINGS, table="t", state="FAILED", slot="s", retained_bytes=0, fault="no slot", hint="Capture it again."
)
OUTPUT = OutputReport(
    table=DAYS, output="hook", kind="webhook", state="failed", version=1, behind=0, behind_s=None, waiting=1, refused=0,
    error="1 changes wait: 500", has_failed=True,
)  # fmt: skip


def well(**facts: Any) -> Snapshot:
    """A snapshot in which nothing is wrong but this."""
    return snapshot(**{"queries": WELL, "faults": {}, **facts})


TROUBLED = well(
    processes=[process("broker", "FATAL"), process("stream-plant")],
    queries=[
        query("ingest", freshness_s=1_200.0),
        query("hours", error="no column x"),
        query("days", behind=7, updated_at=LONG_AGO),
        query("broken", behind=10_001, behind_s=60.0),
    ],
    tables=[table(HOURS, audit=replace(AUDIT, unexplained=1_200)), table(DAYS), table(BROKEN)],
    gaps=[GAP],
    captures=[CAPTURE],
    outputs=[OUTPUT],
    faults={"moon": Fault("it is down", "Wait for the night.")},
    refused={"plant.new": Fault("tables/plant/new.py, line 3: invalid syntax.")},
    unproved={"plant.old": "plant.old goes on, but a new table like it is refused: it has no key"},
    of_other_code=[DAYS],
    plain_text={READINGS: f"{READINGS}: 3 records have values of persons in the clear"},
)
DOWN = well(processes=[])
