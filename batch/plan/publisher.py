"""Publishes plans: exactly the stored rows, step by step, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twofold.batch.ledgers.batch_run import Run, record_lost_runs
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause, RunResult
from twofold.batch.plan.plan import FORMAT, Plan, Plans, TableChange
from twofold.batch.plan.planning import Rewrite, definition_of, make_plan
from twofold.batch.plan.steps import (
    Accept,
    ChangeRows,
    CreateTable,
    Finish,
    Lower,
    RecordRuns,
    ReplaceTable,
    Step,
    steps_of,
)
from twofold.batch.reconcile import reconcile_tables
from twofold.batch.rewrite.accepted_decoding import begin_decoding, lower_decoding
from twofold.batch.rewrite.backfill import recompute
from twofold.batch.rewrite.decoded_records import CAUSE
from twofold.batch.rewrite.replay import finish_decoding
from twofold.infra import COMMAND
from twofold.infra.delta.delta_writer import Written, written_by
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.delta.table_copy import keep_before
from twofold.infra.errors import PlanVoid
from twofold.infra.instants import LAST_US, Interval
from twofold.infra.rows.rows import are_here, column_names, count, here, in_spark
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import Accepted, accept, accepted_code
from twofold.tables.refresh.json_values import to_plain_json
from twofold.tables.refresh.open_platform import Platform, ensure_table
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import ALL_KINDS, matching, of_kinds, rows_after, rows_before

if TYPE_CHECKING:
    from twofold.infra.rows.rows import Rows

_ATTEMPTS = 3  # to publish a plan before others change its rows
_NAMED = 3  # rows that a message names


def rewrite_now(
    live: Platform, names: Sequence[str], rewrite: Rewrite, *, cause: Cause, command: Sequence[str], who: str
) -> list[RunResult]:
    """Rewrites history at once: makes a plan for these tables, or this topic, and publishes it.

    An interrupted publication by the same command is finished first. Tables below a topic are reconciled then, those
    below other tables by the next reconcile.

    Args:
        names: full names.
        command: as arguments of `twofold`.

    Returns:
        Results of these tables, those without changes last, then of the tables below a topic.

    Raises: as the rewrite, and as `publish_plan`.
    """
    plans, finished = Plans(live.lake.settings), list[RunResult]()
    for cut in plans.all():
        if cut.state(datetime.now(UTC)) == "begun" and list(cut.command) == list(command):
            try:
                finished += publish_plan(live, cut.id, who)
            except PlanVoid:
                plans.discard(cut)
    outcomes = _rewrite(live, plans, names, rewrite, {"cause": cause, "command": command, "who": who})
    known = {result.table for result in finished}
    outcomes = finished + [result for result in outcomes if result.changed or result.table not in known]
    below = live.registry.below([name for name in names if name in live.registry.topics])
    # One that is declared in another domain may not be there yet.
    there = [table for table in below if table.full_name in live.faults or live.lake.exists(table.full_name)]
    return outcomes + reconcile_tables(live, there)


def _rewrite(
    live: Platform,
    plans: Plans,
    names: Sequence[str],
    rewrite: Rewrite,
    of_plan: Mapping[str, Any],
    attempts: int = _ATTEMPTS,
) -> list[RunResult]:
    """Plans and publishes until no row has changed in between."""
    computed: list[RunResult] = []

    def noted(copy: Platform) -> list[RunResult]:
        computed.extend(rewrite(copy))
        return computed

    plan = make_plan(live, names, noted, with_below=False, **of_plan)
    if not plan.changes:
        plans.remove(plan)
        return computed
    try:
        published = publish_plan(live, plan.id, of_plan["who"])
    except PlanVoid:
        plans.remove(plan)
        if attempts > 1:
            return _rewrite(live, plans, names, rewrite, of_plan, attempts - 1)
        raise
    changed = {result.table for result in published}
    return [*published, *(result for result in computed if result.table not in changed)]


def publish_plan(platform: Platform, name: str, approved_by: str, because: str = "") -> list[RunResult]:
    """Publishes the stored rows of a plan, step by step.

    A row that is already right, by its stream or by an interrupted publication, is not changed. Downstream rows that
    were changed since are left to their streams or to the next reconcile. If the definition is new, rows that have
    closed since the plan was made are computed by it, too.

    Args:
        name: the plan's id, or a prefix of it.
        approved_by: the person who approved it, for the ledger of runs.
        because: the reason, for the plan.

    Returns:
        The changes, also by an earlier interrupted publication; for a published plan, the changes made then.

    Raises:
        BadArgument: there is no such plan, or it was discarded, or has expired; nothing was changed.
        PlanVoid: code or rows that it was computed from have changed since; nothing was changed.
        QualityFailed: a row breaks the current rules of its table; nothing of that table was changed.
        ProcessFailed: another process publishes a plan. Retryable by hand.
    """
    plans = Plans(platform.lake.settings)
    with plans.held():
        plan = plans.find(name)
        publisher = _Publisher(platform, plans, plan)
        if plan.published_at:  # by the commits that were made, so that the answer is the same again
            return publisher.results()
        plans.require_open(plan)
        return publisher.publish(approved_by, because)


class _Publisher:
    """Runs the steps of one plan."""

    def __init__(self, platform: Platform, plans: Plans, plan: Plan) -> None:
        self._plans, self.plan = plans, plan
        self._tables = {change.table: _Publication(platform, plan, change) for change in plan.changes}
        self._finished: list[RunResult] = []

    def publish(self, approved_by: str, because: str = "") -> list[RunResult]:
        """Continues after the last completed step; returns the runs, and the rows completed at the end.

        Raises: as `publish_plan`.
        """
        for table in self._tables.values():
            table.require_unmoved()
        begun = {name: table.version for name, table in self._tables.items()}
        began = self.plan.begun_at or datetime.now(UTC)
        self._save(begun_at=began, begun=begun, approved_by=approved_by, because=because)
        for table in self._tables.values():
            table.note_causes()
        for number, step in enumerate(steps_of(self.plan.changes)[self.plan.done :], self.plan.done + 1):
            self._carry_out(step)
            self._save(done=number)
        self._save(published_at=datetime.now(UTC))
        return self.results() + [result for result in self._finished if result.changed]

    def results(self) -> list[RunResult]:
        """Returns the runs, by their commits, with the seconds of the whole publication."""
        began, ended = self.plan.begun_at, self.plan.published_at
        seconds, left = (ended - began).total_seconds() if began and ended else 0.0, self.plan.left
        return [replace(table.result, seconds=seconds, left=left.get(name, 0)) for name, table in self._tables.items()]

    def _carry_out(self, step: Step) -> None:
        match step:
            case CreateTable(name):
                self._tables[name].create()
            case Lower(name):
                self._tables[name].lower()
            case Accept(name, fact):
                self._tables[name].accept(fact)
            case ChangeRows(name, kinds):
                self._tables[name].change_rows(kinds)
            case ReplaceTable(name):
                self._tables[name].replace_rows()
            case RecordRuns(names):
                self._save(left={name: rows for name in names if (rows := self._tables[name].left())})
                self.results()
            case Finish(name):
                self._finished += self._tables[name].finish()

    def _save(self, **facts: Any) -> None:
        self.plan = self._plans.save(replace(self.plan, **facts))
        for table in self._tables.values():
            table.plan = self.plan


@dataclass
class _Publication:
    """The publication of one table of a plan."""

    platform: Platform
    plan: Plan
    change: TableChange

    def __post_init__(self) -> None:
        self._table: Table | None = self.platform.registry.tables.get(self.change.table)

    @cached_property
    def version(self) -> int:
        """The version of the table when its publication began, or begins now."""
        lake, name = self.platform.lake, self.change.table
        if self.plan.begun_at:
            return self.plan.begun.get(name, self.change.version)
        return lake.version(name) if lake.exists(name) else 0

    @cached_property
    def _run(self) -> Run:
        owner: Table | str = self._table or self.change.table
        return Run(self.platform.lake, self._ledgers, owner, self.change.cause, self.plan.run, self.version)

    @cached_property
    def _ledgers(self) -> Ledgers:
        return Ledgers(self.platform.lake, self.platform.spark)

    @cached_property
    def _target(self) -> PublishedTable:
        return PublishedTable.find(self.platform.spark, self.platform.lake, self.platform.registry, self.change.table)

    @cached_property
    def _kept(self) -> Rows:
        return Plans(self.platform.lake.settings).rows(self.plan, self.change, self.platform.spark)

    def require_unmoved(self) -> None:
        """Refuses if the inputs of the plan, or the rows that it replaces, have changed since.

        Raises: as `publish_plan`.
        """
        name = self.change.table
        now = definition_of(self.platform, name)
        if self.plan.format != FORMAT:
            raise self._void("earlier code made it")
        if now is None:
            raise self._void(f"{name} is not declared any more")
        if now != self.change.definition:
            raise self._void(f"the code of {name} has changed: {self.change.definition} then, {now} now")
        if self.plan.begun_at or self.change.replaces or self.change.is_below or not self.platform.lake.exists(name):
            return
        moved = self._moved()
        if number := count(moved):
            raise self._void(f"{number:,} rows of {name} have changed since: {self._named(moved)}", moved=number)

    def _moved(self) -> Rows:
        """Returns the rows that are neither in the plan's old state nor in its new state."""
        now = self._now(self._kept)
        undone, left = self._target.difference(rows_before(self._kept), now), self._left(self._kept, now)
        return matching(undone, left, self._target.key, "SEMI")

    def _left(self, kept: Rows, now: Rows) -> Rows:
        """Computes the difference between the current rows and the plan's new rows."""
        return self._target.difference(rows_after(kept), now)

    def _now(self, kept: Rows) -> Rows:
        rows = self._target.rows_of(kept)
        columns = column_names(rows_after(kept))
        return rows.select(columns) if are_here(rows) else rows.select(*columns)

    def create(self) -> None:
        """Creates the table if it does not exist."""
        if self._table is not None:
            ensure_table(self.platform.session, self.platform.lake, self.platform.registry, self._table)

    def note_causes(self) -> None:
        """Records the causes of the run, and unrecorded changes of dead runs."""
        lake, name = self.platform.lake, self.change.table
        if self._table is not None and lake.exists(name):
            record_lost_runs(lake, self._ledgers, self._table)
        self._run.note_causes(Plans(lake.settings).evidence(self.plan, name))

    def lower(self) -> None:
        """Records which events are about to be of code that is not accepted."""
        topic = self.platform.registry.topics[self.change.table]
        ranges = {int(partition): tuple(span) for partition, span in self.change.info["offsets"].items()}
        lower_decoding(self.platform.lake, topic, ranges, self._run.info)

    def accept(self, fact: Accepted) -> None:
        """Accepts other code, or more rows of the accepted code; not if others have accepted theirs."""
        lake, name, info = self.platform.lake, self.change.table, self._run.info
        before = accepted_code(lake, name)
        is_same = before is not None and before.code == fact.code
        if is_same and before and before.is_whole and not fact.is_whole:
            return
        if fact.through == {} and name in self.platform.registry.topics:
            begin_decoding(lake, name, fact, info)
        elif fact.through == {}:
            accept(lake, name, fact, info=info)
        elif is_same:
            accept(lake, name, fact, instead_of=before, info=info)

    def change_rows(self, kinds: Sequence[str]) -> None:
        """Publishes the changes of these kinds in one commit."""
        rows, info = of_kinds(self._kept, kinds), self._info
        self._target.publish(lambda _: (rows, info), check=self._checks, as_shown=True)

    def replace_rows(self) -> None:
        """Replaces the table by the stored rows, once: later rows of its new stream stay."""
        if not self._own_commits():
            self._target.replace(in_spark(self.platform.spark, self._kept), self._info, check=self._checks)

    @property
    def _info(self) -> Mapping[str, object]:
        """The information in its commits; those of a topic's tables make streams leave the rows to the batch."""
        inputs = {"inputs": self.change.inputs} if self.change.inputs else {}
        cause = {} if self._table is not None else {"cause": CAUSE}
        return {**self._run.info, **self.change.info, "plan": self.plan.id, **inputs, **cause}

    @property
    def _checks(self) -> bool:
        """Whether rows have to keep the rules; rows that a rollback restores do not."""
        return self.change.cause != "rollback"

    def _own_commits(self) -> list[LoggedCommit]:
        """Returns the commits of this plan that have changed rows."""
        lake, name = self.platform.lake, self.change.table
        commits = lake.commits(name, self.version, lake.version(name), kept=True)
        return [commit for commit in commits if commit.changes and commit.info.get("run") == self.plan.run]

    @cached_property
    def _written(self) -> Written:
        """The effect of the commits that were made."""
        own = self._own_commits()
        written = sum(map(written_by, own), Written())
        if self.change.replaces and own:
            return replace(written, deleted=int(self.platform.lake.open(self.change.table, self.version).count()))
        return written

    def left(self) -> int:
        """Counts the rows that others have changed since the plan was made; they are not changed."""
        if self.change.replaces or self.change.is_below or self._written.changed >= self.change.changed:
            return 0
        rows = of_kinds(self._kept, ALL_KINDS)
        return count(self._left(rows, self._now(rows)))

    @cached_property
    def result(self) -> RunResult:
        """The run by its commits; recorded once."""
        change = self.change
        counts: dict[str, Any] = {**change.counts, "approved_by": self.plan.approved_by}
        code = change.fact.code if change.fact and self._table is not None else None
        keep = change.cause in ("definition", "rollback")
        keep_before(self.platform.lake, change.table, self.plan.run, self.version)
        result = self._run.end(self._written, keep=keep, definition=code, **counts)
        return replace(result, days=change.days)

    def finish(self) -> list[RunResult]:
        """Recomputes with the new code the rows that old code has written since the plan was made."""
        if (topic := self.platform.registry.topics.get(self.change.table)) is not None:
            return finish_decoding(self.platform, topic)
        table, fact = self._table, accepted_code(self.platform.lake, self.change.table)
        if table is None or fact is None or fact.is_whole or not fact.is_of(self.change.definition):
            return []
        then_ms, since = self.change.info.get("watermark_ms"), None
        if table.closes_at and table.event_time and table.depends_within_ms is not None and then_ms is not None:
            since = Interval(int(then_ms) - table.depends_within_ms, LAST_US // 1_000)
        return [recompute(self.platform, table, since, accepts=True)]

    def _named(self, rows: Rows) -> str:
        key = list(self._target.key)
        first = here(rows.slice(0, _NAMED) if are_here(rows) else rows.limit(_NAMED)).select(key).to_pylist()
        return "; ".join(" ".join(f"{c}={to_plain_json(v)}" for c, v in row.items()) for row in first)

    def _void(self, what: str, **facts: object) -> PlanVoid:
        if self.plan.begun_at:
            hint = f"It was cut short: `{COMMAND} discard {self.plan.id}` gives it up; look again: {self.plan.again}."
            return PlanVoid(f"The plan {self.plan.id} cannot go on: {what}.", hint=hint)
        return PlanVoid(
            f"The plan {self.plan.id} is void: {what}. Nothing was changed.",
            hint=f"Look again: {self.plan.again}.",
            **facts,
        )
