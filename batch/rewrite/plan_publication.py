"""Publishes plans: exactly the rows that were kept, each table in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batch.ledgers.batch_run import Run, record_lost_runs
from batch.ledgers.reconcile_position import ReconcilePosition, reconcile_positions
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import RunResult
from batch.pinned_versions import Pinned
from batch.rewrite.backfill import accept_definition, recompute
from batch.rewrite.plan import Plan, Plans, TableChange
from batch.rewrite.planning import definition_of
from batch.rewrite.publication import target_of
from batch.rewrite.replay import accept_decoding
from infra.delta.delta_writer import Written
from infra.delta.lake import QUARANTINE
from infra.errors import PlanVoid, ProcessFailed
from infra.instants import LAST_US, Interval
from infra.process.file_locks import exclusive
from infra.spark.rows import are_here, column_names, count, here, in_spark
from tables.declare.code_fingerprint import FINGERPRINT
from tables.declare.table import Table
from tables.refresh.json_values import to_plain_json
from tables.refresh.open_platform import Platform, ensure_table
from tables.refresh.row_diff import matching, of_kinds, rows_after, rows_before
from tables.refresh.scope import merged
from tables.refresh.target import Target

if TYPE_CHECKING:
    from infra.spark.rows import Rows

_NAMED = 3  # rows that a message names
_ALL = ("insert", "update", "delete")


def publish_plan(platform: Platform, name: str, approved_by: str) -> list[RunResult]:
    """Publish the rows that a plan has kept, as they were shown.

    A row that is already as it should be, by its stream or by a publication that was cut short, is left alone. Tables
    below those that the plan is about leave out rows that were changed since: their streams, or the next reconcile,
    see to these. Under a new definition rows that have closed since the plan was made are computed by it, too.

    Args:
        name: the plan's id, or how it begins.
        approved_by: who wants it, for the ledger of runs.

    Returns:
        What was changed; of a plan that was published before, what was changed then.

    Raises:
        BadArgument: there is no such plan, or it was discarded, or has expired; nothing was changed.
        PlanVoid: code or rows that it was computed from have changed since; nothing was changed.
        QualityFailed: a row breaks the rules of its table as they are now; nothing of that table was changed.
        ProcessFailed: another process publishes a plan. Retryable by hand.
    """
    settings = platform.lake.settings
    plans = Plans(settings)
    with exclusive(settings.home / "run" / "plans.lock") as is_ours:
        if not is_ours:
            raise ProcessFailed("Another process publishes a plan.", hint="Wait until it has ended, then try again.")
        plan = plans.find(name)
        if plan.published_at:  # a task whose answer was lost asks again
            return _recorded(platform, plan)
        plans.require_open(plan)
        publications = [_Publication(platform, plan, change) for change in plan.changes]
        for publication in publications:
            publication.require_unmoved()
        plan = plans.save(replace(plan, begun_at=plan.begun_at or datetime.now(UTC), approved_by=approved_by))
        results = _publish(publications, approved_by)
        results += [result for one in publications for result in one.complete() if result.changed]
        plans.save(replace(plan, published_at=datetime.now(UTC)))
    return results


def _recorded(platform: Platform, plan: Plan) -> list[RunResult]:
    """The changes of a published plan, by the ledger of runs."""
    ledgers, names = Ledgers(platform.lake, platform.spark), {field.name for field in fields(RunResult)}
    runs = [(change.days, ledgers.newest_run(change.table, run=plan.run)) for change in plan.changes]
    facts = [{**run, "days": days} for days, run in runs if run]
    return [RunResult(**{name: fact[name] for name in names & fact.keys()}) for fact in facts]


def _publish(publications: Sequence[_Publication], approved_by: str) -> list[RunResult]:
    for publication in publications:
        publication.begin()
    by_name = {publication.change.table: publication for publication in publications}
    for name, publication in by_name.items():
        quarantine = by_name.get(name + QUARANTINE)
        if quarantine:
            # A record that changes sides is for a moment on both, never on neither.
            publication.publish(_ALL[:2])
            quarantine.publish(_ALL)
            publication.publish(_ALL[2:])
        elif not (name.endswith(QUARANTINE) and name.removesuffix(QUARANTINE) in by_name):
            publication.publish(_ALL)
    return [publication.end(approved_by) for publication in publications]


@dataclass
class _Publication:
    """One table of a plan on its way."""

    platform: Platform
    plan: Plan
    change: TableChange

    def __post_init__(self) -> None:
        self._written = Written()
        self._run: Run | None = None
        self._table: Table | None = self.platform.registry.tables.get(self.change.table)

    @cached_property
    def _ledgers(self) -> Ledgers:
        return Ledgers(self.platform.lake, self.platform.spark)

    @cached_property
    def _target(self) -> Target:
        return target_of(self.platform, self.change.table)

    @cached_property
    def _kept(self) -> Rows:
        return Plans(self.platform.lake.settings).rows(self.plan, self.change, self.platform.spark)

    def require_unmoved(self) -> None:
        """Refuse where what the rows were computed from, or the rows that they replace, are not what they were.

        Raises: as `publish_plan`.
        """
        name = self.change.table
        now = definition_of(self.platform, name)
        if now is None:
            raise self._void(f"{name} is not declared any more")
        if now != self.change.definition:
            raise self._void(f"the code of {name} has changed: {self.change.definition} then, {now} now")
        if self.change.replaces or not self.platform.lake.exists(name):
            return
        if not self.change.is_below:
            self._require_rows_unmoved()
            self._require_inputs_unmoved()

    def _require_rows_unmoved(self) -> None:
        moved = self._moved()
        if number := count(moved):
            raise self._void(f"{number:,} rows of {self.change.table} have changed since: {self._named(moved)}")

    def _require_inputs_unmoved(self) -> None:
        """Refuse new input of a table that follows changes: its stream has seen it, reconcile will not look again."""
        if self._table is None or not self.platform.registry.strategy(self._table).follows_changes:
            return
        pinned = Pinned(self.platform, self._table)
        then = {name: version for name, version in self.change.inputs.items() if name in pinned.versions}
        if self.plan.begun_at or not then:
            return
        before = ReconcilePosition(stream=pinned.stream, consumed={**pinned.versions, **then})
        scopes = merged(scope for touched in pinned.touched(before, with_stream=True) for scope in touched.scopes)
        rows = here(self._kept)
        still = pinned.outside(rows, scopes) if scopes and len(rows) else rows
        if len(still) < len(rows):
            inputs = ", ".join(name for name, version in then.items() if pinned.versions[name] > version)
            raise self._void(
                f"{len(rows) - len(still):,} rows of {self.change.table} depend on what has come since in {inputs}"
            )

    def _moved(self) -> Rows:
        """The rows that are now neither what they were when the plan was made, nor what it makes of them."""
        now = self._now(self._kept)
        undone, left = self._target.difference(rows_before(self._kept), now), self._left(self._kept, now)
        return matching(undone, left, self._target.key, "SEMI")

    def _left(self, kept: Rows, now: Rows) -> Rows:
        """The differences between the rows as they are now and as the plan makes them."""
        return self._target.difference(rows_after(kept), now)

    def _now(self, kept: Rows) -> Rows:
        rows = self._target.rows_of(kept)
        columns = column_names(rows_after(kept))
        return rows.select(columns) if are_here(rows) else rows.select(*columns)

    def begin(self) -> None:
        """Note why, and let the next reconcile look again at all that came since the plan was made."""
        platform, change = self.platform, self.change
        if self._table is not None:
            ensure_table(platform.session, platform.lake, platform.registry, self._table)
            record_lost_runs(platform.lake, self._ledgers, self._table)
            self._rewind(self._table)
        owner: Table | str = self._table or change.table
        self._run = Run(platform.lake, self._ledgers, owner, change.cause, self.plan.run)
        self._run.note_causes(Plans(platform.lake.settings).evidence(self.plan, change.table))

    def _rewind(self, table: Table) -> None:
        position = reconcile_positions(self.platform.lake).get(table.full_name)
        if position is None:
            return
        inputs = {
            name: min(version, self.change.inputs[name])
            for name, version in position.consumed.items()
            if name in self.change.inputs
        }
        if inputs != {name: position.consumed[name] for name in inputs}:
            rewound = replace(position, consumed={**position.consumed, **inputs})
            self._ledgers.move({table.full_name: rewound}, table.full_name)

    def publish(self, kinds: Sequence[str]) -> None:
        """Publish the changes of these kinds, in one commit."""
        run = self._run
        assert run is not None
        own = {change.table for change in self.plan.changes}
        inputs = {n: self.platform.lake.version(n) if n in own else v for n, v in self.change.inputs.items()}
        info = {**run.info, **self.change.info, "plan": self.plan.id, **({"inputs": inputs} if inputs else {})}
        if self.change.replaces:
            self._written += self._target.replace(in_spark(self.platform.spark, self._kept), info)
        else:
            rows = of_kinds(self._kept, kinds)
            self._written += self._target.publish(lambda _: (rows, info), check=True, as_shown=True)
        if self._table is None:
            if FINGERPRINT in self.change.info:
                accept_decoding(self.platform, self.platform.registry.topics[self.change.table], info)
        elif self.change.cause == "definition":
            accept_definition(self.platform, self._table, info)

    def end(self, approved_by: str) -> RunResult:
        """Note the run, and how many rows that were shown others have changed since they were looked at."""
        run, change = self._run, self.change
        assert run is not None
        counts: dict[str, Any] = {**change.counts, "approved_by": approved_by}
        result = run.end(self._written, keep=change.cause == "definition", **counts)
        left = 0
        if not change.replaces and not change.is_below and self._written.changed < change.changed:
            rows = of_kinds(self._kept, _ALL)
            left = count(self._left(rows, self._now(rows)))
        return replace(result, days=change.days, left=left)

    def complete(self) -> list[RunResult]:
        """Compute rows that a stream of the old code has closed since the plan was made by the new code, too."""
        table = self._table
        if table is None or self.change.cause != "definition":
            return []
        then_ms, since = self.change.info.get("watermark_ms"), None
        if table.closes_at and table.event_time and table.depends_within_ms is not None and then_ms is not None:
            since = Interval(int(then_ms) - table.depends_within_ms, LAST_US // 1_000)
        return [recompute(self.platform, table, since, accepts=True)]

    def _named(self, rows: Rows) -> str:
        key = list(self._target.key)
        first = here(rows.slice(0, _NAMED) if are_here(rows) else rows.limit(_NAMED)).select(key).to_pylist()
        return "; ".join(" ".join(f"{c}={to_plain_json(v)}" for c, v in row.items()) for row in first)

    def _void(self, what: str) -> PlanVoid:
        return PlanVoid(
            f"The plan {self.plan.id} is void: {what}. Nothing was changed.",
            hint=f"Look again: {self.plan.again}.",
        )
