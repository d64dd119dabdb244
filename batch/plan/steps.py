"""The steps that publish a plan, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from twofold.batch.plan.plan import Plan, TableChange
from twofold.batch.rewrite.decoded_records import MOVES
from twofold.infra.delta.lake import QUARANTINE
from twofold.tables.refresh.acceptance import Accepted
from twofold.tables.refresh.row_diff import ALL_KINDS


@dataclass(frozen=True)
class CreateTable:
    """Creates a new table."""

    table: str


@dataclass(frozen=True)
class Accept:
    """Changes the accepted code of a table's rows; other code is refused from then on."""

    table: str
    fact: Accepted


@dataclass(frozen=True)
class Lower:
    """Records which events are about to be decoded by code that is not accepted."""

    table: str


@dataclass(frozen=True)
class ChangeRows:
    """Publishes the stored changes of these kinds in one commit."""

    table: str
    kinds: Sequence[str]
    rows: int


@dataclass(frozen=True)
class ReplaceTable:
    """Replaces all rows and the columns of a table in one commit."""

    table: str


@dataclass(frozen=True)
class RecordRuns:
    """Records the changes of the commits in the ledger."""

    tables: Sequence[str]


@dataclass(frozen=True)
class Finish:
    """Recomputes rows that other code has written since the plan was made, and accepts the new code for all rows."""

    table: str


Step: TypeAlias = CreateTable | Accept | Lower | ChangeRows | ReplaceTable | RecordRuns | Finish


def described(step: Step) -> str:
    """Describes a step in one line for people."""
    match step:
        case CreateTable(table):
            return f"create {table}"
        case Lower(table):
            return f"note that events of {table} are not of its accepted code"
        case Accept(table, fact):
            rows = "no row is known to be of it yet" if fact.through == {} else "all rows that were compared are of it"
            return f"accept the code {fact.code} of {table}: {rows}"
        case ChangeRows(table, kinds, rows):
            return f"{', '.join(kinds)} rows of {table}: {rows:,}"
        case ReplaceTable(table):
            return f"replace {table}"
        case RecordRuns(tables):
            return f"record the runs of {', '.join(tables)}"
        case Finish(table):
            return f"compute what was written to {table} since the plan was made, and accept the code of all rows"


def steps_of(changes: Sequence[TableChange]) -> list[Step]:
    """Returns the steps that publish these changes. Each may be repeated without effect.

    Old code is refused before the first row changes, and new code is accepted once all rows have changed.
    """
    steps: list[Step] = [CreateTable(change.table) for change in changes if change.creates]
    accepting = [(change, change.fact) for change in changes if change.fact]
    for change, fact in accepting:
        if change.is_lowered:
            steps.append(Lower(change.table))
        elif change.accepts_other_code:
            steps.append(Accept(change.table, replace(fact, through={})))
    steps += _of_rows({change.table: change for change in changes})
    finished = [change for change, fact in accepting if fact.code == change.definition and not change.is_whole_already]
    for change, fact in accepting:
        if not change.is_lowered and (fact.through is not None or change not in finished):
            steps.append(Accept(change.table, fact))
    if changes:
        steps.append(RecordRuns([change.table for change in changes]))
    return [*steps, *(Finish(change.table) for change in finished)]


def progress(plan: Plan) -> list[tuple[str, bool]]:
    """Returns the steps of a plan, a line each for people, and whether each has ended."""
    return [(described(step), number < plan.done) for number, step in enumerate(steps_of(plan.changes))]


def _of_rows(by_name: dict[str, TableChange]) -> Iterator[Step]:
    """Yields the steps that change rows: a topic's two tables in the order in which records move, then other tables."""
    for name, change in by_name.items():
        if name + QUARANTINE in by_name:
            for side, kinds in MOVES:
                yield from _change(by_name[name + side], kinds)
        elif not (name.endswith(QUARANTINE) and name.removesuffix(QUARANTINE) in by_name):
            yield from _change(change, ALL_KINDS)


def _change(change: TableChange, kinds: Sequence[str]) -> Iterator[Step]:
    if change.replaces:
        yield ReplaceTable(change.table)
        return
    counts = {"insert": change.inserted, "update": change.updated, "delete": change.deleted}
    there = [kind for kind in kinds if counts[kind]]
    if there:
        yield ChangeRows(change.table, there, sum(counts[kind] for kind in there))
