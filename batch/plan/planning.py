"""Makes plans: runs a rewrite of history in a copy of the affected tables, and stores the differences."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause, RunResult, run_name
from twofold.batch.plan.difference_summary import column_changes, summarise
from twofold.batch.plan.plan import (
    FORMAT,
    LASTS,
    Plan,
    Plans,
    TableChange,
    keep_evidence,
    keep_rows,
    removed_unless_finished,
    rows_name,
)
from twofold.batch.plan.platform_copy import copied
from twofold.batch.reconcile import reconcile_tables
from twofold.batch.rewrite.accepted_decoding import by_partition
from twofold.infra.airflow.dag_names import dag_run_of
from twofold.infra.delta.change_feed import sides_of
from twofold.infra.delta.delta_writer import CHANGE
from twofold.infra.delta.lake import QUARANTINE
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.duckdb_session import query
from twofold.infra.rows.rows import are_here, count
from twofold.infra.rows.sizes import CHANGED, is_small
from twofold.tables.declare.code_fingerprint import digest
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.output_view import KEY, View
from twofold.tables.refresh.acceptance import Accepted, accepted_code, definition, is_accepted, require_proved
from twofold.tables.refresh.events.decoding_fingerprint import decoding
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import difference, rows_after, rows_before
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twofold.infra.rows.rows import Rows

Rewrite = Callable[[Platform], Sequence[RunResult]]
"""Rewrites history on a platform, of the tables that a plan is about."""
_COUNTS = ("touched", "scopes", "compared")


def make_plan(
    live: Platform,
    names: Sequence[str],
    rewrite: Rewrite,
    *,
    cause: Cause,
    command: Sequence[str],
    who: str = "",
    prepare: Callable[[Platform], None] = lambda copy: None,
    with_below: bool = True,
) -> Plan:
    """Runs a rewrite in a copy of the platform, updates all tables below, and stores the differences as a plan.

    The live platform is not changed.

    Args:
        names: full names of the tables, or of the topic, to rewrite.
        command: the command that would publish it at once.
        prepare: a preparation of the copy, like that of the live platform before a plan is published.
        with_below: also tables that read these.

    Raises: as the rewrite, and `Unproved` for code that is new to a table; no plan is made then.
    """
    for name in live.registry.tables.keys() & names if cause != "rollback" else ():
        require_proved(live.lake, live.registry.tables[name], live.registry)
    plans, run = Plans(live.lake.settings), run_name(cause)
    draft = plans.drafted(run)
    with (
        removed_unless_finished(draft),
        copied(live, names, draft / run, with_below=with_below, with_history=cause == "rollback") as copy,
    ):
        prepare(copy)
        versions = {name: copy.lake.version(name) for name in copy.lake.names()}
        results = list(rewrite(copy))
        below = live.registry.below(names) if with_below else []
        results += reconcile_tables(copy, [t for t in below if _has_rows_of_its_code(copy, t)])
        found = [_change(copy, name, versions, draft) for name in _in_order(copy, versions)]
    changes = [
        replace(_with_results(change, results, cause, names), creates=not live.lake.exists(change.table))
        for change in _with_own_inputs([change for change in found if change], versions)
    ]
    now = datetime.now(UTC)
    name = digest([change.digest for change in changes])[:8] if changes else "unchanged"
    plan = Plan(
        id=f"{run}-{name}",
        cause=cause,
        command=command,
        created_at=now,
        format=FORMAT,
        expires_at=now + LASTS,
        who=who,
        changes=changes,
        asks=_asks(changes, live.registry),
        compared=sum(result.compared or 0 for result in results),
        asked_in=dag_run_of(os.environ),
    )
    draft.rename(plans.folder / plan.id)
    return plans.save(plan)


def _has_rows_of_its_code(copy: Platform, table: Table) -> bool:
    """Whether a table is there, by its code of today; one that is declared in another domain may not be there yet."""
    return copy.lake.exists(table.full_name) and is_accepted(copy.lake, table, copy.registry)


def _with_own_inputs(changes: Sequence[TableChange], versions: Mapping[str, int]) -> list[TableChange]:
    """Sets the version of each input that the plan changes, too, to the version before."""
    changed = {change.table for change in changes}
    return [
        replace(change, inputs={n: versions[n] if n in changed else v for n, v in change.inputs.items()})
        for change in changes
    ]


def _asks(changes: Sequence[TableChange], registry: Registry) -> bool:
    """Whether the changes need an approval, counting rows of tables below; changes of a topic always do."""
    tables = [registry.tables.get(change.table) for change in changes if not change.is_below]
    least = min((table.approve_above or 0 if table else 0 for table in tables), default=0)
    return any(change.replaces for change in changes) or sum(change.changed for change in changes) > least


def _in_order(copy: Platform, versions: Mapping[str, int]) -> list[str]:
    """Lists the tables that may have changed: those of topics first, then each after its inputs."""
    names = [name for topic in copy.registry.topics for name in (topic, topic + QUARANTINE)]
    names += [table.full_name for table in copy.registry.in_order()]
    there = copy.lake.names()
    return [name for name in names if name in there and copy.lake.version(name) > versions.get(name, -1)]


def _change(copy: Platform, name: str, versions: Mapping[str, int], draft: Path) -> TableChange | None:
    """Computes the change of a table since it was copied; None if there is none."""
    version, newest = versions.get(name, 0), copy.lake.version(name)
    commits = list(copy.lake.commits(name, version, newest))
    info = {key: value for commit in commits for key, value in commit.info.items()}
    target, declared = PublishedTable.find(copy.spark, copy.lake, copy.registry, name), copy.registry.tables.get(name)
    then, now = (copy.lake.open(name, v) for v in (version, newest))
    change = TableChange(
        table=name,
        cause=info.get("cause", "backfill"),
        version=version,
        rows_before=int(then.count()),
        replaces=then.schema() != now.schema(),
        definition=definition_of(copy, name) or "",
        inputs=info.get("inputs") or {},
        info={key: value for key, value in info.items() if key not in ("run", "cause", "inputs", "before")},
    )
    changed = _difference(copy, target, version, newest, commits, replaces=change.replaces)
    counts = _counts(changed)
    before, fact = (accepted_code(copy.lake, name, table) for table in (then, now))
    if not counts and before == fact and not change.replaces:
        return None
    if before and fact and before != fact:
        change = replace(change, before=before, fact=_seen(copy, fact, name))
    difference, kept = draft / f"{name}.difference", draft / rows_name(name)
    kept_rows = keep_rows(changed, difference)
    event_time = declared.event_time if declared else None
    summary = summarise(difference, then.scan, target.key, event_time)
    if change.replaces:
        dtypes = (dict(copy.lake.frame(copy.spark, name, v).dtypes) for v in (version, newest))
        summary = {**summary, "schema": column_changes(difference, *dtypes)}
        kept_rows = keep_rows(copy.lake.frame(copy.spark, name), kept)
    else:
        difference.rename(kept)
        change = replace(change, outputs=_outputs(copy, declared, kept) if declared else {})
    evidence = Ledgers(copy.lake).evidence(name)
    runs = {str(commit.info["run"]) for commit in commits if "run" in commit.info}
    keep_evidence((record for run, record in evidence if run in runs), draft / f"{name}.evidence.jsonl")
    return replace(
        change,
        digest=kept_rows,
        inserted=counts.get("insert", 0),
        updated=counts.get("update", 0),
        deleted=counts.get("delete", 0),
        summary=summary,
    )


def _outputs(copy: Platform, table: Table, kept: Path) -> dict[str, int]:
    """Counts the rows of each output of a table that change."""
    import pyarrow.dataset as ds  # imports pandas, too

    closed_ms = Checkpoint.of_table(copy.lake.settings, table).watermark_ms() if table.outputs else None
    changed = Counter[str]()
    for part in ds.dataset(kept, format="parquet").to_batches() if table.outputs else ():
        before, after = (side(pa.Table.from_batches([part])) for side in (rows_before, rows_after))
        for output in table.outputs:
            view = View.declared(table, output)
            differing = difference(view.rows(after, closed_ms), view.rows(before, closed_ms), [KEY])
            changed[output.name_for(table.name)] += count(differing)
    return dict(changed)


def _seen(copy: Platform, fact: Accepted, name: str) -> Accepted:
    """Adds to the accepted code of a topic the offsets up to which the copy has its records."""
    topic = copy.registry.topics.get(name)
    if topic is None or not fact.is_whole:
        return fact
    return replace(fact, through=by_partition(read_ingested_offsets(copy.lake, topic).ends))


def _difference(
    copy: Platform, target: PublishedTable, version: int, newest: int, commits: list[LoggedCommit], *, replaces: bool
) -> Rows:
    """Computes the difference between two versions of a table; a column that one of them lacks is null there."""
    lake, changing = copy.lake, [commit for commit in commits if commit.changes]
    rows = sum(commit.rows_changed for commit in changing)
    if not changing:
        nothing = pa.schema(lake.open(target.name).schema()).empty_table()
        return target.difference(nothing, nothing)
    if not replaces and is_small(lake.settings, rows, CHANGED):
        return target.difference(*reversed(sides_of(lake, target.name, [c.version for c in changing], target.key)))
    before, after = (lake.frame(copy.spark, target.name, v) for v in (version, newest))
    return target.difference(_with_columns_of(after, before), _with_columns_of(before, after))


def _with_columns_of(frame: DataFrame, other: DataFrame) -> DataFrame:
    """Adds the other frame's columns as nulls; a column with two types becomes text."""
    from pyspark.sql import functions as F

    own, others = dict(frame.dtypes), dict(other.dtypes)
    columns = []
    for name in dict.fromkeys([*own, *others]):
        value = F.col(SPARK.name(name)) if name in own else F.lit(None).cast(others[name])
        has_two_types = name in own and others.get(name, own[name]) != own[name]
        columns.append((value.cast("string") if has_two_types else value).alias(name))
    return frame.select(*columns)


def _counts(changed: Rows) -> dict[str, int]:
    if not are_here(changed):
        return {row[CHANGE]: row["count"] for row in changed.groupBy(CHANGE).count().collect()}
    rows = query(f"SELECT {CHANGE} AS kind, count(*) AS n FROM changed GROUP BY 1", changed=changed)
    return {row["kind"]: row["n"] for row in rows.to_pylist()}


def _with_results(
    change: TableChange, results: Sequence[RunResult], cause: Cause, names: Collection[str]
) -> TableChange:
    """Adds to the change the cause and the counts of its run."""
    of_table = [result for result in results if result.table == change.table and (result.changed or len(results) == 1)]
    counts: dict[str, Any] = {}
    for counted in _COUNTS:
        given = [value for result in of_table if (value := getattr(result, counted)) is not None]
        counts |= {counted: sum(given)} if given else {}
    is_below = change.table.removesuffix(QUARANTINE) not in names
    own: Cause = of_table[-1].cause if of_table else change.cause
    return replace(change, counts=counts, is_below=is_below, cause=own if is_below or of_table else cause)


def definition_of(platform: Platform, name: str) -> str | None:
    """Returns the fingerprint of the current definition of a table's rows; None if it is not declared."""
    registry = platform.registry
    if name in registry.tables:
        return definition(registry.tables[name], registry)
    topic = registry.topics.get(name.removesuffix(QUARANTINE))
    return None if topic is None else decoding(topic)
