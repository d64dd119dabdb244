"""Publishes plans: exactly the rows that were kept, each table in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batch.ledgers.batch_run import Run, record_lost_runs
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import RunResult
from batch.plan.plan import FORMAT, Plan, Plans, TableChange
from batch.plan.planning import definition_of
from batch.rewrite.backfill import recompute
from batch.rewrite.publication import target_of
from batch.rewrite.replay import begin_decoding, finish_decoding, lower_decoding
from infra.delta.delta_writer import Written, written_by
from infra.delta.lake import QUARANTINE
from infra.errors import PlanVoid, ProcessFailed
from infra.instants import LAST_US, Interval
from infra.process.file_locks import exclusive
from infra.spark.rows import are_here, column_names, count, here, in_spark
from tables.declare.table import Table
from tables.refresh.acceptance import accept, accepted_code, code_today
from tables.refresh.json_values import to_plain_json
from tables.refresh.open_platform import Platform, ensure_table
from tables.refresh.row_diff import matching, of_kinds, rows_after, rows_before
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
        What was changed, also by a publication that was cut short before; of a plan that was published what was then.

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
        publications = [_Publication(platform, plan, change) for change in plan.changes]
        if plan.published_at:  # by the commits that were made, so that the answer is the same again
            return [_timed(publication.result(), plan) for publication in publications]
        plans.require_open(plan)
        for publication in publications:
            publication.require_unmoved()
        begun = {one.change.table: one.version for one in publications}
        plan = replace(plan, begun_at=plan.begun_at or datetime.now(UTC), begun=begun, approved_by=approved_by)
        results, finished = _publish(publications, plans.save(plan))
        left = {result.table: result.left for result in results}
        plan = plans.save(replace(plan, published_at=datetime.now(UTC), left=left))
    return [*(_timed(result, plan) for result in results), *finished]


def _timed(result: RunResult, plan: Plan) -> RunResult:
    """The result, with the seconds that the publication of the whole plan took."""
    began, ended = plan.begun_at, plan.published_at
    return replace(result, seconds=(ended - began).total_seconds() if began and ended else result.seconds)


def _publish(publications: Sequence[_Publication], plan: Plan) -> tuple[list[RunResult], list[RunResult]]:
    """Publish the tables of a plan that has begun, in their order.

    Returns:
        The runs, and what was done about rows of old code that were written since the plan was made.
    """
    for publication in publications:
        publication.plan = plan
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
    results = [publication.end() for publication in publications]
    return results, [result for one in publications for result in one.complete() if result.changed]


@dataclass
class _Publication:
    """One table of a plan on its way."""

    platform: Platform
    plan: Plan
    change: TableChange

    def __post_init__(self) -> None:
        self._table: Table | None = self.platform.registry.tables.get(self.change.table)
        topic = self.platform.registry.topics.get(self.change.table)
        self._topic = topic if "through" in self.change.info else None

    @cached_property
    def version(self) -> int:
        """The version of the table when its publication began, or begins now."""
        lake, name = self.platform.lake, self.change.table
        return self.plan.begun[name] if self.plan.begun else lake.version(name) if lake.exists(name) else 0

    @cached_property
    def _run(self) -> Run:
        owner: Table | str = self._table or self.change.table
        return Run(self.platform.lake, self._ledgers, owner, self.change.cause, self.plan.run, self.version)

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
        if self.plan.format != FORMAT and not self.plan.begun_at:
            raise self._void("earlier code made it")
        if now is None:
            raise self._void(f"{name} is not declared any more")
        if now != self.change.definition:
            raise self._void(f"the code of {name} has changed: {self.change.definition} then, {now} now")
        if self.plan.begun_at or self.change.replaces or self.change.is_below or not self.platform.lake.exists(name):
            return
        moved = self._moved()
        if number := count(moved):
            raise self._void(f"{number:,} rows of {name} have changed since: {self._named(moved)}")

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
        """Note why, and keep old code out."""
        platform, change = self.platform, self.change
        if self._table is not None:
            ensure_table(platform.session, platform.lake, platform.registry, self._table)
            record_lost_runs(platform.lake, self._ledgers, self._table)
        self._run.note_causes(Plans(platform.lake.settings).evidence(self.plan, change.table))
        self._accept()

    def _accept(self) -> None:
        """Keep old code out of the table, whose rows are on the way to today's."""
        lake, registry, run, name = self.platform.lake, self.platform.registry, self._run, self.change.table
        if self._topic is not None:
            begin_decoding(lake, self._topic, run.info)
        elif name in registry.topics and (ranges := self.change.info.get("offsets")):
            lower_decoding(lake, registry.topics[name], {int(p): tuple(span) for p, span in ranges.items()}, run.info)
        elif self._table is not None and self.change.cause == "definition":
            now, fact = code_today(self._table, registry), accepted_code(lake, name)
            is_same = fact is not None and fact.is_of(now.code, whole=True)
            accept(lake, name, now if is_same else replace(now, through={}), info=run.info)

    def publish(self, kinds: Sequence[str]) -> None:
        """Publish the changes of these kinds, in one commit."""
        inputs = {"inputs": self.change.inputs} if self.change.inputs else {}
        info = {**self._run.info, **self.change.info, "plan": self.plan.id, **inputs}
        if self.change.replaces:
            self._target.replace(in_spark(self.platform.spark, self._kept), info)
        else:
            rows = of_kinds(self._kept, kinds)
            self._target.publish(lambda _: (rows, info), check=True, as_shown=True)

    def result(self) -> RunResult:
        """The run by its commits, which is noted once."""
        lake, change = self.platform.lake, self.change
        commits = lake.commits(change.table, self.version, lake.version(change.table), kept=True)
        own = [commit for commit in commits if commit.changes and commit.info.get("run") == self.plan.run]
        written = sum(map(written_by, own), Written())
        if change.replaces and own:
            written = replace(written, deleted=int(lake.open(change.table, self.version).count()))
        counts: dict[str, Any] = {**change.counts, "approved_by": self.plan.approved_by}
        result = self._run.end(written, keep=change.cause == "definition", **counts)
        return replace(result, days=change.days, left=self.plan.left.get(change.table, 0))

    def end(self) -> RunResult:
        """Note the run, and count the rows that others have changed since they were shown: they stay as they are."""
        result = self.result()
        if result.changed >= self.change.changed or self.change.replaces or self.change.is_below:
            return result
        rows = of_kinds(self._kept, _ALL)
        return replace(result, left=count(self._left(rows, self._now(rows))))

    def complete(self) -> list[RunResult]:
        """Compute what old code has written since the plan was made by the new code, too."""
        if self._topic is not None:
            return finish_decoding(self.platform, self._topic, self.change.info)
        table, fact = self._table, accepted_code(self.platform.lake, self.change.table)
        if table is None or fact is None or fact.is_whole:
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
        if self.plan.begun_at:
            hint = f"It was cut short: finish it by the code that made it, or `./twofold discard {self.plan.id}`."
            return PlanVoid(f"The plan {self.plan.id} cannot go on: {what}.", hint=hint)
        return PlanVoid(
            f"The plan {self.plan.id} is void: {what}. Nothing was changed.",
            hint=f"Look again: {self.plan.again}.",
        )
