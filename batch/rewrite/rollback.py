"""Takes back, row by row, the changes of a run in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from twofold.batch.ledgers.batch_run import Run, record_lost_runs
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RunResult, run_name
from twofold.batch.rewrite.accepted_decoding import by_partition
from twofold.batch.rewrite.decoded_records import CAUSE
from twofold.infra import COMMAND
from twofold.infra.delta.change_feed import sides_of
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.delta.table_copy import before
from twofold.infra.errors import BadArgument
from twofold.infra.rows.rows import here
from twofold.tables.declare.metadata_columns import REPLAYED
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import FINGERPRINT, Accepted, accept, accepted_code, is_same
from twofold.tables.refresh.events.ingested_offsets import offsets_at
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.row_diff import matching


def rollback(platform: Platform, table: Table, run: str = "") -> RunResult:
    """Takes back in a copy, row by row, the changes of a run to the table.

    Rows that were changed since are left as they are, and so are writes of others during the run. If the run changed
    the columns, the whole table is restored to the version before; the stream of the old definition adds later rows.

    Args:
        run: its name in the ledger; empty: the last promotion or acceptance of a new definition.

    Raises:
        BadArgument: there is no such run, it was taken back already, or the table has another definition since.
        ChangesGone: its changes can no longer be read.
    """
    lake, name, ledgers = platform.lake, table.full_name, Ledgers(platform.lake, platform.spark)
    record_lost_runs(lake, ledgers, table)
    taken_back = _changing_run(ledgers, name, run)
    first, last = taken_back["version_before"], taken_back["version_after"]
    then = before(lake, name, taken_back["run"])
    _require_not_undone(lake, then, table, taken_back["run"], last)
    fact = _code_at(then, name, first)
    code = fact.code if fact else ""
    own = Run(lake, ledgers, table, "rollback")
    target = PublishedTable.of_table(platform.spark, lake, table)
    info = {**own.info, "undoes": last, FINGERPRINT: code}
    if fact:
        accept(lake, name, fact, info=own.info)
    if then.open(name, last).schema() != then.open(name, first).schema():
        written = target.replace(then.frame(platform.spark, name, first), info, check=False)
    else:
        written = target.publish(lambda _: (_undone(target, then, taken_back), info), check=False)
    return own.end(written, keep=True, definition=code, scopes=1)


def rollback_decoded(platform: Platform, topic: Topic, run: str) -> list[RunResult]:
    """Takes back in a copy, row by row, the changes of a replay or redrive to a topic's events and quarantine.

    Restored events are marked as replayed, so that streams leave them to the batch.

    Args:
        run: its name in the ledger.

    Raises:
        BadArgument: there is no such run, or it was taken back already.
        ChangesGone: its changes can no longer be read.
    """
    lake, ledgers, own = platform.lake, Ledgers(platform.lake, platform.spark), run_name("rollback")
    names = (topic.full_name, topic.full_name + QUARANTINE)
    taken_back = {name: row for name in names if (row := ledgers.newest_run(name, run=run))}
    if not taken_back:
        raise _no_run(topic.full_name, f"has no run {run or 'of that name'} that changed it")
    for name, row in taken_back.items():
        _require_not_taken_back(lake, name, run, row["version_after"])
    outcomes = []
    for name, row in taken_back.items():
        of_table = Run(lake, ledgers, name, "rollback", own)
        if name == topic.full_name:
            _accept_before(lake, before(lake, name, run), topic, row["version_before"], of_table)
        target = PublishedTable.find(platform.spark, lake, platform.registry, name)
        changes = _replayed(_undone(target, before(lake, name, run), row))
        info = {**of_table.info, "cause": CAUSE, "undoes": row["version_after"]}
        written = target.publish(lambda _, changes=changes, info=info: (changes, info), check=False)  # type: ignore[misc]
        outcomes.append(of_table.end(written))
    return outcomes


def _accept_before(lake: Lake, kept: Lake, topic: Topic, version: int, run: Run) -> None:
    """Accepts the decoding of a version again; records ingested since may have another decoding."""
    name = topic.full_name
    then, now = _code_at(kept, name, version), accepted_code(lake, name)
    if then and now and then.code != now.code:
        ends = by_partition({p: last for p, (_, last) in offsets_at(kept, topic, version)[0].items()})
        accept(lake, name, replace(then, through=ends) if then.is_whole else then, info=run.info)


def _replayed(rows: pa.Table) -> pa.Table:
    """Marks the events among the changes as replayed."""
    if REPLAYED not in rows.column_names:
        return rows
    return rows.set_column(rows.column_names.index(REPLAYED), REPLAYED, pa.repeat(True, len(rows)))


def _versions_of(lake: Lake, name: str, run: Mapping[str, Any]) -> list[int]:
    """Returns the versions of a run's commits."""
    commits = lake.commits(name, run["version_before"], run["version_after"], kept=True)
    return [commit.version for commit in commits if commit.info.get("run") == run["run"] and commit.changes]


def _undone(target: PublishedTable, then: Lake, run: Mapping[str, Any]) -> pa.Table:
    """Computes the difference between the table and its state before a run, without rows changed since.

    Args:
        then: a lake that has the versions before and after the run.
    """
    old, after = sides_of(then, target.name, _versions_of(then, target.name, run), target.key)
    touched = pa.concat_tables([old, after]).select(list(target.key))
    now = here(target.rows_of(touched)).select(after.schema.names).cast(after.schema)
    undone, since = here(target.difference(old, after)), target.difference(after, now)
    return matching(undone, since, target.key, "ANTI")


def _changing_run(ledgers: Ledgers, name: str, run: str) -> Mapping[str, Any]:
    """Returns the run of this name, or the newest promotion or acceptance of a definition."""
    newest = ledgers.newest_run(name, ("rebuild", "definition")) if not run else ledgers.newest_run(name, run=run)
    if newest is None:
        raise _no_run(name, f"has no run {run} that changed it" if run else "was never promoted from a rebuild")
    return newest


def _no_run(name: str, why: str) -> BadArgument:
    return BadArgument(f"{name} {why}.", hint=f"`{COMMAND} show {name}` lists its versions and runs.")


def _require_not_taken_back(lake: Lake, name: str, run: str, last: int) -> None:
    if any(commit.info.get("undoes") == last for commit in lake.commits(name, last, lake.version(name), kept=True)):
        raise _no_run(name, f"has {run} taken back already")


def _require_not_undone(lake: Lake, kept: Lake, table: Table, run: str, last: int) -> None:
    name = table.full_name
    _require_not_taken_back(lake, name, run, last)
    now, then = accepted_code(lake, name), _code_at(kept, name, last)
    if not is_same(now.code if now else "", then.code if then else ""):
        raise BadArgument(
            f"{name} has another definition since {run}: its rows would be of two.",
            hint=f"Take the newer definition back first: `{COMMAND} rollback {name}`.",
        )


def _code_at(lake: Lake, name: str, version: int) -> Accepted | None:
    """Returns the accepted code of the rows at a version."""
    return accepted_code(lake, name, lake.open(name, version))
