"""The result of a run for one table, for people, the ledger and Airflow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from twofold.infra.delta.delta_writer import Written
    from twofold.tables.refresh.row_diff import Difference

RUNS = "ledger.runs"
"""One row per run and table."""

Cause = Literal["late", "backfill", "replay", "upstream", "definition", "repair", "rebuild", "rollback"]


TopicCheck = Literal["audit_offsets", "audit_log", "audit_database"]
"""What an audit compares a topic with: its offsets, its log, and the captured table of the database."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Counts of one run on one table.

    Attributes:
        touched: input rows that could have changed it.
        scopes: groups of rows that were recomputed.
        pending: scopes with rows that the stream still revises; they are checked again.
        waits_until: the stream's watermark at which the last of these is checked; None if none waits.
        inserted, updated, deleted: rows published.
        unexplained: rows that differ from their recomputation without a cause.
        differences: the first of these rows.
        approved_by: the person who approved it, if one was asked.
        corrected: lines about the first rows that it changed.
        days: of the rows that it changed, like `2013-01-05`, if they have a time.
        left: rows of a plan that others changed while it was published; they are not changed.
        compared: rows of the table in the range that was recomputed; None if that was not counted.
        files_written: data files of the publication.
        version_before, version_after: of the Delta table.
    """

    table: str
    cause: Cause
    run: str
    touched: int = 0
    scopes: int = 0
    pending: int = 0
    waits_until: datetime | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unexplained: int = 0
    files_written: int = 0
    version_before: int | None = None
    version_after: int | None = None
    seconds: float = 0.0
    differences: Sequence[Difference] = ()
    approved_by: str = ""
    compared: int | None = None
    corrected: Sequence[str] = ()
    days: Sequence[str] = ()
    left: int = 0

    @classmethod
    def idle(cls, table: str, seconds: float = 0.0) -> RunResult:
        """Builds the result for a table that nothing touched."""
        return cls(table=table, cause="late", run=run_name("late"), seconds=seconds)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    def publishing(self, written: Written, version_before: int) -> RunResult:
        """Adds the published changes over a version of the table."""
        return replace(
            self,
            inserted=written.inserted,
            updated=written.updated,
            deleted=written.deleted,
            files_written=written.files,
            version_before=version_before,
            version_after=version_before if written.version is None else written.version,
        )


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The audit of one table.

    Attributes:
        turn, of: the audited share: part `turn` of `of`.
        version: of the Delta table.
        rows: the number of live rows that were compared.
        buckets: the number of buckets with a live or an expected row; 0: nothing was compared.
        differing: the number of buckets whose fingerprints differ from the recomputation.
        excused: the number of rows that differ and that the next reconcile will check.
        unexplained: the number of rows that differ without a cause, with `unfound`; `differences`: the first of these.
        unfound: the number of buckets that differ in more than rounding although rows with equal keys are equal.
        skipped: the reason why the table was not audited; empty if it was. `hint`: the remedy.
    """

    table: str
    run: str
    turn: int
    of: int
    version: int | None = None
    rows: int = 0
    buckets: int = 0
    differing: int = 0
    excused: int = 0
    unexplained: int = 0
    differences: Sequence[Difference] = ()
    unfound: int = 0
    skipped: str = ""
    hint: str = ""
    seconds: float = 0.0


def run_name(cause: str) -> str:
    """Generates a name for a run that sorts by time: `late-20130101T000000.123456Z`."""
    return f"{cause}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def started_at(run: str) -> datetime | None:
    """Parses the time in the name of a run; None if it is no such name."""
    with suppress(ValueError):
        return datetime.strptime(run.rpartition("-")[2], "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    return None
