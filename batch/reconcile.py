"""Finds the records that streams missed, recomputes the affected rows from the log, and publishes the difference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers.batch_run import Run, record_lost_runs
from twofold.batch.ledgers.reconcile_position import ReconcilePosition, is_far
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.pending_work import nothing_to_do
from twofold.batch.pinned_versions import Pinned, Touched
from twofold.batch.unexplained import require_explained
from twofold.infra.delta.delta_writer import CHANGE, Written
from twofold.infra.errors import TwofoldError
from twofold.infra.rows.rows import here
from twofold.infra.spark.spark_client import failing_alone
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import require_one_definition
from twofold.tables.refresh.open_platform import Platform, opened
from twofold.tables.refresh.row_diff import differences_of
from twofold.tables.refresh.scope import Scope, everything, merged, scope_of_row

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings


def reconcile(settings: Settings, tables: Sequence[str] = (), *, verify: bool = False) -> list[RunResult]:
    """Corrects the closed rows of tables from the log, each table after its inputs.

    Spark is started once, when the first table needs it, and not at all if the Delta logs show no work.

    Args:
        tables: full or bare names, or domains; none: every table.
        verify: also recompute every closed row, report rows that differ without a cause, and compare the table with its
            history: the writes of its stream, and the corrections of the ledger.

    Returns:
        One result per table and cause, in dependency order; an untouched table has one of zeros.

    Raises:
        BadArgument: an unknown table; nothing was touched.
        BadDeclaration: a table could not be loaded or created.
        DefinitionChanged: the rows of a table were computed by another definition than the declared one.
        QualityFailed: recomputed rows of a table break their rules; nothing of it was published.
        UnexplainedDifference: with `verify`.
        TwofoldError: several of these, or another failure of a table. All of them are raised after every other table
            was corrected.
        SparkUnreachable: at once.
    """
    from twofold.tables.declare.registry import load

    registry = load()
    chosen = registry.chosen(tables)
    with opened(settings, "reconcile", [table.domain for table in chosen]) as platform:
        return reconcile_tables(platform, chosen, verify=verify, refused=registry.left_out(tables).values())


def reconcile_tables(
    platform: Platform,
    tables: Sequence[Table],
    *,
    verify: bool = False,
    repair: bool = False,
    refused: Iterable[TwofoldError] = (),
) -> list[RunResult]:
    """Reconciles tables of an open platform, each after its inputs.

    Args:
        repair: verify, and overwrite unexplained rows.
        refused: errors of other tables, which could not be loaded.
    """
    outcomes: list[RunResult] = []
    unfolded: list[str] = []
    refused = list(refused)
    for table in tables:
        if fault := platform.faults.get(table.full_name):
            refused.append(fault)
            continue
        # Checked only now: changes just published above are input of this table.
        if not verify and not repair and nothing_to_do(platform.lake, platform.registry, [table]):
            outcomes.append(RunResult.idle(table.full_name))
            continue
        results: list[RunResult] = []
        with failing_alone(table.full_name, refused):
            results = Reconcile(platform, table).run(verify=verify or repair)
            if repair and results[-1].unexplained:
                results[-1:] = Reconcile(platform, table).repair(results[-1])
            if verify and results and (rows := unexplained_changes(platform.lake, table)):
                unfolded.append(f"{table.full_name}: {rows} rows are not what its stream and its corrections say")
        outcomes += results
    require_explained(outcomes, unfolded, refused)
    return outcomes


def correct(platform: Platform, table: Table) -> list[RunResult]:
    """Corrects one table of an open platform, without verification."""
    return Reconcile(platform, table).run(verify=False)


@dataclass
class Reconcile:
    """One reconcile of one table, pinned to the commits at its start."""

    platform: Platform
    table: Table
    _started: float = field(default_factory=time.monotonic, init=False)
    _pending: dict[Scope, int] = field(default_factory=dict, init=False)
    _runs: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._pinned = Pinned(self.platform, self.table)

    def run(self, *, verify: bool) -> list[RunResult]:
        """Corrects the table, then verifies it if requested.

        Raises:
            DefinitionChanged: its rows were computed by another definition.
        """
        require_one_definition(self.platform.lake, self.table, self.platform.registry)
        pinned = self._pinned
        before = pinned.before()
        record_lost_runs(self.platform.lake, pinned.ledgers, self.table)
        pinned.wait_for_stream()
        outcomes = [self._nothing()] if pinned.is_open or pinned.is_guess else self._correct(before)
        if verify:
            outcomes[-1] = replace(outcomes[-1], **self._verified())
        return outcomes

    def repair(self, verified: RunResult) -> list[RunResult]:
        """Overwrites the rows that a verification could not explain, under the cause `repair`.

        Args:
            verified: the verification.

        Returns:
            The verification without unexplained rows, then the repair.
        """
        rows = self._unexplained()
        scopes = merged(scope_of_row(self.table, row) for row in rows.to_pylist())
        repaired = self._publish(Touched("repair", len(rows), scopes))
        return [replace(verified, unexplained=0, differences=()), repaired]

    def _correct(self, before: ReconcilePosition) -> list[RunResult]:
        pinned = self._pinned
        now = pinned.watermark_ms
        due = {scope for scope, closes_ms in before.pending.items() if now is None or closes_ms < now}
        self._pending = {scope: closes_ms for scope, closes_ms in before.pending.items() if scope not in due}
        causes = [t for t in pinned.touched(before, merged(due)) if t.rows or t.scopes]
        if not causes:
            return [self._publish(Touched("late"), is_last=True) if self._is_far_from(before) else self._nothing()]
        *others, last = causes
        return [*(self._publish(touched) for touched in others), self._publish(last, is_last=True)]

    def _is_far_from(self, before: ReconcilePosition) -> bool:
        """Whether the position should be stored, so that the next run does not check the same commits again."""
        if before.stream != self._pinned.stream or not before.consumed:
            return True
        return is_far(before.consumed, self._pinned.settled)

    def _publish(self, touched: Touched, *, is_last: bool = False) -> RunResult:
        """Corrects the touched scopes; those with open rows wait until the next of these has closed.

        Args:
            is_last: whether this is the last cause of the run; its position and the waiting scopes are stored then.
        """
        pinned = self._pinned
        run = Run(self.platform.lake, pinned.ledgers, self.table, touched.cause)
        self._runs.append(run.name)
        run.note_causes(touched.evidence)
        written = Written()
        if touched.scopes:
            # Inputs are read as they are now: a recomputation from older ones could undo later changes of others.
            refreshed = pinned.refresher({}).publish(touched.scopes, run.info, check=True)
            waiting = [scope for scope in touched.scopes if pinned.reaches_open(scope)]
            self._pending |= {scope: refreshed.next_closing_ms[scope] for scope in waiting}
            written = refreshed.written
        return run.end(
            written,
            position=pinned.after(self._pending, self._runs) if is_last else None,
            keep=True,
            touched=touched.rows,
            scopes=len(touched.scopes),
            pending=sum(pinned.reaches_open(s) for s in touched.scopes),
            waits_until=pinned.closed_at(list(self._pending)) if is_last else None,
        )

    def _verified(self) -> dict[str, Any]:
        """Returns the fields of a result that count rows which differ without an explanation."""
        rows = self._unexplained()
        return {
            "compared": 0 if self._pinned.is_open else self._pinned.refresher().live_rows(everything(self.table)),
            "unexplained": len(rows),
            "differences": differences_of(self.table, rows),
        }

    def _unexplained(self) -> pa.Table:
        """Returns closed rows that differ from a full recomputation and that no pending change touches.

        Returns:
            Rows in the form of `PublishedTable.difference`.
        """
        pinned = self._pinned
        empty = pa.table({CHANGE: pa.array([], pa.string())})
        if pinned.is_open:
            return empty
        rows = here(pinned.refresher().difference(everything(self.table)))
        return pinned.outside(rows, pinned.in_flight(pinned.after())) if len(rows) else empty

    def _nothing(self) -> RunResult:
        """Builds the result for a table without work."""
        return RunResult.idle(self.table.full_name, time.monotonic() - self._started)
