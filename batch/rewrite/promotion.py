"""Compares a rebuilt table with the live one, publishes it in one commit, and rolls back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from batch.audit.hash_buckets import HASH, row_hash, totals
from batch.ledgers.batch_run import Run, record_lost_runs
from batch.ledgers.run_ledgers import Ledgers
from batch.ledgers.run_result import Cause, RunResult
from batch.reconcile import correct
from batch.rewrite.backfill import accept_definition
from infra.delta.delta_writer import CHANGE
from infra.errors import BadArgument, TwofoldError, WriteConflict
from infra.instants import from_epoch_ms
from infra.offset_ranges import condition
from tables.declare.code_fingerprint import FINGERPRINT, definition, is_accepted
from tables.declare.metadata_columns import OFFSET, PARTITION
from tables.declare.table import Table
from tables.refresh.events.ingested_offsets import read_ingested_offsets
from tables.refresh.open_platform import Platform
from tables.refresh.row_diff import matching
from tables.refresh.shadow_lake import Comparison, compare_rows
from tables.refresh.streaming_checkpoint import Checkpoint
from tables.refresh.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Promotion:
    """A table in the shadow lake on its way to the live one."""

    live: Platform
    shadow: Platform
    table: Table

    def settle(self) -> None:
        """Correct in the shadow what its own stream dropped as late, as the live table has been corrected."""
        for table in self.shadow.registry.in_order():
            correct(self.shadow, table)

    def compare(self) -> Comparison:
        """Row by row, every column that both have.

        Raises:
            WriteConflict: records arrive faster than they are ingested, and the table's rows have no time by which
                those that they touch could be left out.
        """
        mine, theirs = self._made.columns, self._current.columns
        before = None if self._bound_ms is None else from_epoch_ms(self._bound_ms)
        return replace(
            compare_rows(self.table, self._settled(self._made), self._shown, before),
            new_columns=[c for c in mine if c not in theirs],
            gone_columns=[c for c in theirs if c not in mine],
            digest=self.digest,
        )

    def promote(self, digest: str = "", approved_by: str = "") -> RunResult:
        """Let the live table say what the new one says, in one commit; none when nothing differs.

        Rows that are not settled stay as they are: they are the stream's. Where the columns differ, all rows are
        replaced, and the stream of the new definition adds those that were not settled.

        Args:
            digest: of the rows that were shown, by this object or before; empty: whatever differs.
            approved_by: who wants it, for the ledger.

        Raises:
            BadArgument: other rows differ than were shown; nothing was published.
            QualityFailed: a row breaks the table's rules; nothing was published.
            TwofoldError: others changed some of these rows since they were shown: these stay as they are.
        """
        lake, ledgers = self.live.lake, Ledgers(self.live.lake, self.live.spark)
        record_lost_runs(lake, ledgers, self.table)
        if digest and self.digest != digest:
            raise BadArgument(
                f"{self.table.full_name}: other rows differ than were shown: their digest is {self.digest}, not "
                f"{digest}; nothing was published.",
                hint=self._look_again,
            )
        cause: Cause = "rebuild" if is_accepted(lake, self.table, self.live.registry) else "definition"
        run = Run(lake, ledgers, self.table, cause)
        info = {**run.info, "watermark_ms": self._watermark_ms, FINGERPRINT: definition(self.table, self.live.registry)}
        left = 0
        if self._is_of_other_columns:
            written = self._target.replace(self._settled(self._made), info)
        else:
            written = self._target.publish(lambda _: (self._shown, info), check=True, as_shown=True)
            left = self._left() if self._shown.count() > written.changed else 0
        if cause == "definition":
            accept_definition(self.live, self.table, info)
        result = run.end(written, keep=cause == "definition", scopes=1, approved_by=approved_by)
        if left > 0:
            raise TwofoldError(
                f"{self.table.full_name}: {left} of the rows that were shown were changed since, and stay as they are; "
                f"{written.changed} were published.",
                hint=self._look_again,
            )
        return result

    def _left(self) -> int:
        """How many of the rows that were shown are not so by now; streams may have made some so before."""
        rows = self._shown.where(f"{CHANGE} <> 'delete'").select(self._target.columns())
        return self._target.difference(
            rows, matching(self._target.live(), self._shown, self._target.key, "left_semi")
        ).count()

    @property
    def _look_again(self) -> str:
        return f"Look again: `./twofold rebuild {self.table.full_name}` shows what differs now."

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits of exactly the rows that differ, in whatever order, and of the columns that come and go."""
        from pyspark.sql import functions as F

        rows = self._shown.select(row_hash(self._shown, self._shown.columns).alias(HASH))
        facts = rows.agg(F.count("*"), *totals()).collect()[0]
        return hashlib.sha256(repr([*facts, *self._made.dtypes, *self._current.dtypes]).encode()).hexdigest()[:12]

    @cached_property
    def _shown(self) -> DataFrame:
        """How the settled rows of the live table differ from those of the new one: what is compared, and published."""
        live = self._target.live()
        both = [c for c in live.columns if c in self._made.columns]
        difference = self._target.difference(self._settled(self._made).select(both), self._settled(live).select(both))
        return difference.persist()

    @cached_property
    def _target(self) -> Target:
        return Target.of_table(self.live.spark, self.live.lake, self.table)

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
        checkpoints = [Checkpoint.of_table(platform.lake.settings, self.table) for platform in platforms]
        return min((c.watermark_ms() or 0 for c in checkpoints if c.stream), default=0)

    @cached_property
    def _bound_ms(self) -> int | None:
        in_flight_ms = self._in_flight_ms()
        if in_flight_ms is None:
            return self._watermark_ms
        if not (self.table.closes_at or self.table.event_time):
            raise WriteConflict(
                f"{self.table.full_name}: records arrived since it was rebuilt, and its rows have no time by which "
                "to know those that they touch.",
                hint="Run it again: it processes these records first.",
            )
        reach_ms = sum(table.depends_within_ms or 0 for table in self.shadow.registry.tables.values())
        return min(ms for ms in (self._watermark_ms, in_flight_ms - reach_ms) if ms is not None)

    def _in_flight_ms(self) -> int | None:
        """The earliest event time of the records that only the live platform has ingested; None when there are none."""
        from pyspark.sql import functions as F

        found: list[int | None] = []
        for name, topic in self.shadow.registry.topics.items():
            here, there = (read_ingested_offsets(platform.lake, topic).ends for platform in (self.live, self.shadow))
            beyond = {p: (there.get(p, 0), end) for p, end in here.items() if end > there.get(p, 0)}
            if beyond:
                rows = self.live.lake.frame(self.live.spark, name).where(condition(beyond, PARTITION, OFFSET))
                found += rows.agg(F.min(F.unix_millis(topic.event_time))).collect()[0]
        return min((ms for ms in found if ms is not None), default=None)
