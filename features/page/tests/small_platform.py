"""A platform in the words of a snapshot and a catalog: a topic and three tables, one in failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twofold.batch.audit.topic_certificates import CertifiedTopic
from twofold.batch.ledgers.audit_history import LastAudit
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import plain
from twofold.status.catalog import Entry
from twofold.status.parts.refused_records import Refused
from twofold.status.parts.snapshot import Fault, PartitionState, QueryState, Snapshot, TableState, TopicState
from twofold.status.store import Store
from twofold.tables.refresh.events.lost_offsets import Gap

NOW = datetime.now(UTC).replace(microsecond=0)
REFUSED = [Refused(reason="between(value, 0, 10)", records=2, partition=0, offset=57, text="between(value, 0, 10)")]
CERTIFICATE = CertifiedTopic(at=NOW, version=9, records=60)
AUDIT = LastAudit(at=NOW, turn=0, of=1, rows=40, unexplained=0, all_since=NOW)


def process(name: str, state: Any = "RUNNING") -> ProcessState:
    return ProcessState(name=name, state=state, pid=7, uptime_s=3_600.0, starts=1, detail="")


def query(name: str, **facts: Any) -> QueryState:
    usual: dict[str, Any] = {
        "batch": 3, "watermark": None, "inputs": {}, "held_back_by": None, "rows_in": 4, "rows_out": 2, "batch_s": 0.1,
        "freshness_s": 1.5, "updated_at": NOW - timedelta(seconds=2), "behind": 0, "error": "",
    }  # fmt: skip
    return QueryState(domain="plant", query=name, **{**usual, **facts})


def topic(name: str, *, latest: int | None = 60, next: int = 60) -> TopicState:
    lag = None if latest is None else latest - next
    part = PartitionState(partition=0, earliest=0, latest=latest, next=next, lag=lag, tiered=40, leaves_in_s=90.0)
    return TopicState(
        name=name,
        partitions=[part],
        events=58,
        quarantined=2,
        archive_bytes=2_048,
        refused=REFUSED,
        certificate=CERTIFICATE,
    )


def table(name: str, **facts: Any) -> TableState:
    usual: dict[str, Any] = {"strategy": "stateful", "rows": 40, "late": 5, "corrections": 3, "version": 7}
    return TableState(name=name, **{**usual, "audit": AUDIT, **facts})


def entry(name: str, inputs: tuple[str, ...] = (), readers: tuple[str, ...] = (), **facts: Any) -> Entry:
    usual: dict[str, Any] = {
        "kind": "table" if inputs else "topic", "description": f"All about {name}.",
        "declaration": {"kind": "as declared", "key": ["sensor", "hour"], "late records": "end in corrections"},
        "columns": [{"name": "sensor", "type": "string", "description": "which one", "made of": "readings.sensor"}],
        "rules": ["between(value, 0, 10)"], "watermark_ms": 3_600_000 if inputs else None,
        "strategy": "stateful" if inputs else "", "owner": "the plant", "outputs": ["postgres hours"] if inputs else [],
        "lineage": {"sensor": [f"{one}.sensor" for one in inputs]},
        "influences": {"which rows count": [f"{one}.sensor" for one in inputs]} if inputs else {},
    }  # fmt: skip
    return Entry(name=name, inputs=inputs, readers=readers, **{**usual, **facts})


READINGS, HOURS, DAYS, BROKEN = "plant.readings", "plant.hours", "plant.days", "plant.broken"
CATALOG: Mapping[str, Entry] = {
    READINGS: entry(READINGS, (), (HOURS, BROKEN)),
    HOURS: entry(HOURS, (READINGS,), (DAYS,)),
    DAYS: entry(DAYS, (HOURS,)),
    BROKEN: entry(BROKEN, (READINGS,), untraced={"sensor": "`mapInPandas`"}),
}


def snapshot(**facts: Any) -> Snapshot:
    """A snapshot in which `plant.broken` has failed, the moon is down, records were lost, and all else is well."""
    gap = Gap(topic=READINGS, partition=0, start=4, end=6, recorded_at=NOW, why="gone", log="x")
    usual: dict[str, Any] = {
        "at": NOW,
        "processes": [process("broker"), process("stream-plant")],
        "topics": [topic(READINGS)],
        "queries": [query("ingest"), query("hours"), query("days"), query("broken", error="no column x")],
        "tables": [table(HOURS), table(DAYS), table(BROKEN)],
        "programs": {"plant": ["broker", "stream-plant"]},
        "faults": {"moon": Fault("it is down")},
        "gaps": [replace(gap, acknowledged_at=NOW, because="it was a test")],
    }
    return Snapshot(**{**usual, **facts})


def saved(settings: Settings, now: Snapshot | None = None, catalog: Mapping[str, Any] = CATALOG) -> Snapshot:
    """Saves the snapshot and the catalog in the store of a home; one of `NOW` as of this moment, so that it is new."""
    now = now or snapshot()
    now = replace(now, at=datetime.now(UTC)) if now.at == NOW else now
    assert Store(settings).save({}, snapshot=plain(now), catalog=plain(catalog))
    return now
