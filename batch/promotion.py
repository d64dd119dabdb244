"""Compares a table that was made anew with the live one, publishes it in one commit, and takes that back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from batch.backfill import accept_definition
from batch.reconcile import Reconcile
from batch.unexplained import named
from infra.errors import BadArgument, WriteConflict
from tables.changes import inverse
from tables.checkpoint import Checkpoint
from tables.declaration import Table
from tables.decode import OFFSET, PARTITION
from tables.difference import difference
from tables.fingerprint import FINGERPRINT, fingerprint, recorded
from tables.frontier import frontier
from tables.ledgers import Ledgers
from tables.outcome import Cause, Difference, Outcome, run_name
from tables.refresh import require_good
from tables.scope import epoch_ms, from_epoch_ms
from tables.setup import Platform
from tables.writer import CHANGE, Stamp, Writer, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APP = "rebuild"
"""The transaction id of promotions, and of what takes them back."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the live table differs from the one that was made anew.

    Attributes:
        rows: rows of the new one that are settled: neither open nor touched by records that came since.
        missing, extra, changed: rows that the live table lacks, should not have, has otherwise.
        new_columns, gone_columns: of the new one, and of the live one only.
        examples: the first rows that differ.
        before: rows that close before it were compared, or that are dated before it; None: all.
    """

    table: str
    rows: int
    missing: int
    extra: int
    changed: int
    new_columns: Sequence[str] = ()
    gone_columns: Sequence[str] = ()
    examples: Sequence[Difference] = ()
    before: datetime | None = None

    @property
    def differing(self) -> int:
        """Rows."""
        return self.missing + self.extra + self.changed

    @property
    def is_equal(self) -> bool:
        return not (self.differing or self.new_columns or self.gone_columns)


@dataclass(frozen=True)
class Promotion:
    """A table in the shadow lake on its way to the live one."""

    live: Platform
    shadow: Platform
    table: Table

    def settle(self) -> None:
        """Correct in the shadow what its own stream dropped as late, as the live table has been corrected."""
        for table in self.shadow.registry.in_order():
            Reconcile(self.shadow, table).run(verify=False)

    def compare(self) -> Comparison:
        """Row by row, every column that both have.

        Raises:
            WriteConflict: records arrive faster than they are taken in, and the table's rows have no time by which
                those that they touch could be left out.
        """
        changes = self._changes().persist()
        try:
            counts = {row[CHANGE]: row["count"] for row in changes.groupBy(CHANGE).count().collect()}
            examples = named(self.table, pa.table(changes.limit(5).toArrow()))
        finally:
            changes.unpersist()
        mine, theirs = self._made.columns, self._current.columns
        return Comparison(
            table=self.table.full_name,
            rows=self._settled(self._made).count(),
            missing=counts.get("insert", 0),
            extra=counts.get("delete", 0),
            changed=counts.get("update", 0),
            new_columns=[c for c in mine if c not in theirs],
            gone_columns=[c for c in theirs if c not in mine],
            examples=examples,
            before=None if self._bound_ms is None else from_epoch_ms(self._bound_ms),
        )

    def promote(self) -> Outcome:
        """Let the live table say what the new one says, in one commit; none when nothing differs.

        Rows that are not settled stay as they are: they are the stream's. Where the columns differ, all rows are
        replaced, and the stream of the new definition adds those that were not settled.

        Raises:
            QualityFailed: a row breaks the table's rules; nothing was published.
        """
        began, lake, name = time.monotonic(), self.live.lake, self.table.full_name
        ledgers = Ledgers(lake, self.live.spark)
        ledgers.catch_up(self.table)
        now = fingerprint(self.table)
        cause: Cause = "rebuild" if recorded(lake, self.table) in (None, now) else "definition"
        writer, version = Writer(lake, name, self.live.spark), lake.version(name)
        info = {"cause": cause, "run": run_name(cause), FINGERPRINT: now, "watermark_ms": self._watermark_ms}
        stamp = Stamp(app=APP, version=writer.next_number(APP), info=info)
        written = self._replace(writer, stamp) if self._is_of_other_columns else self._apply(writer, stamp)
        if cause == "definition":
            accept_definition(lake, self.table, info)
        ledgers.record_corrections(self.table)
        outcome = Outcome(table=name, cause=cause, run=str(info["run"]), scopes=1, seconds=time.monotonic() - began)
        outcome = outcome.publishing(written, version)
        if outcome.changed or cause == "definition":
            ledgers.record_run(outcome, None, now)
        return outcome

    def _apply(self, writer: Writer, stamp: Stamp) -> Written:
        changes = writer.collect(self._changes())
        if not (len(changes) if isinstance(changes, pa.Table) else changes.count()):
            return Written()
        require_good(self.live.spark, self.table, changes)
        return writer.apply(changes, self.table.key, stamp)

    def _replace(self, writer: Writer, stamp: Stamp) -> Written:
        from pyspark.sql import functions as F

        rows = self._settled(self._made)
        require_good(self.live.spark, self.table, rows.withColumn(CHANGE, F.lit("insert")))
        return writer.replace(rows, stamp)

    def _changes(self) -> DataFrame:
        both = [c for c in self._current.columns if c in self._made.columns]
        return difference(
            self._settled(self._made).select(both),
            self._settled(self._current).select(both),
            self.table.key,
            approximate=self.table.approximate,
        )

    @property
    def _is_of_other_columns(self) -> bool:
        return dict(self._made.dtypes) != dict(self._current.dtypes)

    @cached_property
    def _made(self) -> DataFrame:
        return self.shadow.lake.frame(self.live.spark, self.table.full_name)

    @cached_property
    def _current(self) -> DataFrame:
        return self.live.lake.frame(self.live.spark, self.table.full_name)

    def _settled(self, rows: DataFrame) -> DataFrame:
        """The rows that neither lake is about to change."""
        from pyspark.sql import functions as F

        column = self.table.closes_at or self.table.event_time
        if self._bound_ms is None or column is None or column not in rows.columns:
            return rows
        return rows.where(F.col(column).cast("timestamp") < F.lit(from_epoch_ms(self._bound_ms)))

    @cached_property
    def _watermark_ms(self) -> int | None:
        """Before it, both streams have closed their rows."""
        if not self.table.closes_at:
            return None
        platforms = (self.live, self.shadow)
        checkpoints = [Checkpoint.of(platform.lake.settings, self.table) for platform in platforms]
        return min((c.watermark_ms() or 0 for c in checkpoints if c.stream), default=0)

    @cached_property
    def _bound_ms(self) -> int | None:
        in_flight_ms = self._in_flight_ms()
        if in_flight_ms is None:
            return self._watermark_ms
        if not (self.table.closes_at or self.table.event_time):
            raise WriteConflict(
                f"{self.table.full_name}: records arrived since it was made anew, and its rows have no time that tells "
                "which of them they touch.",
                hint="Run it again: it takes them in first.",
            )
        reach_ms = sum(table.lookback_ms or 0 for table in self.shadow.registry.tables.values())
        return min(ms for ms in (self._watermark_ms, in_flight_ms - reach_ms) if ms is not None)

    def _in_flight_ms(self) -> int | None:
        """The earliest event time of the records that only the live platform has taken in; None when there are none."""
        from pyspark.sql import functions as F

        found = []
        for name, topic in self.shadow.registry.topics.items():
            here, there = (frontier(platform.lake, topic).ends for platform in (self.live, self.shadow))
            beyond = [
                f"({PARTITION} = {p} AND {OFFSET} >= {there.get(p, 0)})" for p in here if here[p] > there.get(p, 0)
            ]
            if beyond:
                rows = self.live.lake.frame(self.live.spark, name).where(" OR ".join(beyond))
                found.append(epoch_ms(rows.agg(F.min(topic.event_time)).collect()[0][0]))
        return min((ms for ms in found if ms is not None), default=None)


def rollback(platform: Platform, table: Table) -> Outcome:
    """Take the newest promotion of the table back, in one commit.

    Rows that were changed since stay as they are. Where the promotion changed columns, the table as a whole is what it
    was before; the stream of the old definition adds what came since.

    Raises:
        BadArgument: nothing was promoted, or the newest promotion was taken back already.
    """
    began, lake, name = time.monotonic(), platform.lake, table.full_name
    ledgers = Ledgers(lake, platform.spark)
    ledgers.catch_up(table)
    writer, newest = Writer(lake, name, platform.spark), lake.version(name)
    version = _promoted(platform, table)
    before = lake.newest_info(name, FINGERPRINT, within=100_000, at=version - 1) or {}
    info = {"cause": "rollback", "run": run_name("rollback"), "undoes": version, FINGERPRINT: before.get(FINGERPRINT)}
    stamp = Stamp(app=APP, version=writer.next_number(APP), info=info)
    if lake.open(name, version).schema() != lake.open(name, version - 1).schema():
        written = writer.restore(version - 1, stamp)
    else:
        written = writer.apply(inverse(lake, name, version, table.key), table.key, stamp)
    ledgers.record_corrections(table)
    outcome = Outcome(table=name, cause="rollback", run=str(info["run"]), scopes=1, seconds=time.monotonic() - began)
    outcome = outcome.publishing(written, newest)
    ledgers.record_run(outcome, None, str(before.get(FINGERPRINT) or ""))
    return outcome


def _promoted(platform: Platform, table: Table) -> int:
    """The version of the newest promotion."""
    lake, name = platform.lake, table.full_name
    number = lake.open(name).transaction_version(APP)
    commit = None if number is None else lake.commit_of(name, APP, number, -1)
    if commit is None or commit.info.get("cause") == "rollback":
        why = "was never promoted from a rebuild" if commit is None else "has its newest promotion taken back already"
        raise BadArgument(f"{name} {why}.", hint=f"`./twofold show {name}` lists its versions.")
    return commit.version
