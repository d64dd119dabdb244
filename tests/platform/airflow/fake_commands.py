"""`twofold` whose commands are parsed, refused and reported as ever, and whose work is not done."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from twofold.batch.audit.archive_vs_broker import LogCopies
from twofold.batch.audit.table_audit import AuditedTopic, AuditReport
from twofold.batch.audit.topic_audit import TopicReport
from twofold.batch.ledgers.run_result import Audited, Cause, RunResult
from twofold.batch.plan.plan import LASTS, Plan, Plans, TableChange
from twofold.cli.__main__ import main
from twofold.infra.airflow.dag_names import dag_run_of
from twofold.infra.errors import NotArchived, QualityFailed
from twofold.infra.project.settings import Settings
from twofold.quality.check_result import Verdict
from twofold.streaming.rebuild.lost_state import Recovery
from twofold.tables.declare.registry import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twofold.batch.offset_selection import OffsetSelection
    from twofold.tables.declare.table import Table
    from twofold.tables.declare.topic import Topic

FRONTIER = 1_000
"""Offsets that ingest has taken in, of every partition."""
RIGHT, BREAKS_A_RULE = "flights.airport_weather", "flights.carrier_days"
"""Tables where a backfill would change nothing, or publish a row that breaks a rule."""


def reconcile(settings: Settings, tables: Sequence[str], *, verify: bool = False) -> list[RunResult]:
    """The first table was corrected."""
    first, *others = [table.full_name for table in load().chosen(tables)]
    return [
        replace(changed(first, "late"), days=["2013-01-02"]),
        *(RunResult(table=name, cause="late", run="late-1") for name in others),
    ]


def readable(platform: object, topic: Topic, span: OffsetSelection) -> dict[int, tuple[int, int]]:
    ends = span.end if isinstance(span.end, dict) else {}
    for partition, end in ends.items():
        if end > FRONTIER:
            raise NotArchived(f"{topic}, partition {partition}: [0, {end}) ends beyond {FRONTIER}, the frontier.")
    return dict.fromkeys(range(topic.partitions), (0, FRONTIER))


def make_plan(
    platform: object, names: Sequence[str], _: object, *, cause: Cause, command: Sequence[str], **about: str
) -> Plan:
    """One row of the first table changes, and none where it has no time. The first attempt to repair is killed."""
    settings = Settings.from_environment()
    killed = settings.home / "killed"
    if cause == "repair" and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    change = TableChange(table=names[0], cause=cause, version=1, rows_before=9, updated=1)
    now = datetime.now(UTC)
    made = Plan(
        id=f"{cause}-1-{names[0]}",
        cause=cause,
        command=command,
        created_at=now,
        expires_at=now + LASTS,
        changes=[] if names[0] == RIGHT else [change],
        asks=names[0] != RIGHT,
        asked_in=dag_run_of(os.environ),
        **about,
    )
    plans = Plans(settings)
    (plans.folder / made.id).mkdir(parents=True, exist_ok=True)
    return plans.save(made)


def publish_plan(platform: object, name: str, approved_by: str, because: str) -> list[RunResult]:
    [change] = Plans(Settings.from_environment()).find(name).changes
    if change.table == BREAKS_A_RULE:
        raise QualityFailed(f"1 row of {change.table} breaks flights > 0.")
    return [changed(change.table, change.cause)]


def quality(settings: Settings, tables: Sequence[str]) -> list[Verdict]:
    return [Verdict(table=name, rows=1, rules=()) for name in tables or load().tables]


def audit(
    settings: Settings, tables: Sequence[str], logs: Mapping[str, OffsetSelection], *, share: float
) -> AuditReport:
    if logs:
        return AuditReport(logs=[compared(name) for name in logs])
    found = Audited(table="", run="audit-1", turn=0, of=round(1 / share), rows=1, buckets=1)
    audited = [replace(found, table=name) for name in tables or load().tables]
    return AuditReport(
        tables=audited, topics=[AuditedTopic(topic=name, partitions=[], waiting=0) for name in load().topics]
    )


def compared(name: str) -> TopicReport:
    sides = LogCopies(archive_alone=0, both=0, broker_alone=9, unlike=[], in_transactions=0, lost=0, missing=[])
    return TopicReport(
        topic=name, against="the log", records=9, blocks=1, differing=[], versions=(1, 1), seconds=0.1, sides=sides
    )


def recover(live: Any, table: Table, *_: object) -> Any:
    found = Recovery(table=table.full_name, found="lost", versions={})
    return SimpleNamespace(run=lambda **how: found)


def changed(name: str, cause: str) -> RunResult:
    return RunResult(table=name, cause=cause, run=f"{cause}-1", updated=1, version_before=1, version_after=2)  # type: ignore[arg-type]


def pending_tables(settings: Settings, tables: Sequence[str] = ()) -> list[str]:
    """The first table has work."""
    return [table.full_name for table in load().chosen(tables)][:1]


WORK = {
    "twofold.batch.pending_work.pending_tables": pending_tables,
    "twofold.batch.plan.planning.make_plan": make_plan,
    "twofold.batch.plan.publisher.publish_plan": publish_plan,
    "twofold.batch.reconcile.reconcile": reconcile,
    "twofold.batch.ledgers.corrected_rows.with_corrected_rows": lambda _, outcomes: outcomes,
    "twofold.batch.rewrite.replay.readable": readable,
    "twofold.batch.quality_check.quality": quality,
    "twofold.batch.audit.table_audit.audit": audit,
    "twofold.streaming.rebuild.lost_state.Recover": recover,
    "twofold.batch.log_reader.Log": lambda *_: SimpleNamespace(starts=None, read=None),
    "twofold.tables.refresh.open_platform.opened": lambda *_, **__: nullcontext(SimpleNamespace(registry=load())),
}

if __name__ == "__main__":
    for name, work in WORK.items():
        patch(name, work).start()
    main()
