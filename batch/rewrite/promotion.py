"""Promotes a table that was rebuilt in a shadow lake to the live table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from twofold.batch.ledgers.batch_run import Run, record_lost_runs
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import Cause, RunResult
from twofold.batch.reconcile import correct
from twofold.infra.errors import WriteConflict
from twofold.infra.offset_ranges import condition
from twofold.infra.spark.spark_literals import instant_of
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import accept, code_facts, code_today, is_accepted
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.streaming_checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Promotion:
    """The promotion of a table from the shadow lake.

    Attributes:
        live: the platform to which it is promoted, in a copy.
    """

    live: Platform
    shadow: Platform
    table: Table

    def settle(self) -> None:
        """Corrects in the shadow the records that its own stream dropped as late, like those of the live table."""
        for table in self.shadow.registry.in_order():
            correct(self.shadow, table)

    def promote(self) -> RunResult:
        """Publishes the differences of the rebuilt table to the live table, of a copy, in at most one commit.

        Unsettled rows are left to the stream. If the columns differ, all rows are replaced, and the stream of the new
        definition adds the unsettled ones.

        Raises:
            QualityFailed: a row breaks the table's rules; nothing was published.
            WriteConflict: records arrive faster than they are ingested, and the table's rows have no time by which
                those that they touch could be left out.
        """
        lake, ledgers = self.live.lake, Ledgers(self.live.lake, self.live.spark)
        record_lost_runs(lake, ledgers, self.table)
        cause: Cause = "rebuild" if is_accepted(lake, self.table, self.live.registry) else "definition"
        run = Run(lake, ledgers, self.table, cause)
        code = code_facts(self.table, self.live.registry)
        info = {**run.info, "watermark_ms": self._watermark_ms, **code}
        is_new = cause == "definition"
        if is_new:
            accept(lake, self.table.full_name, code_today(self.table, self.live.registry), info=info)
        if self._is_of_other_columns:
            written = self._target.replace(self._settled(self._made), info)
        else:
            written = self._target.publish(lambda _: (self.changes, info), check=True, as_shown=True)
        return run.end(written, keep=is_new, scopes=1, compared=self._settled(self._made).count())

    @cached_property
    def changes(self) -> DataFrame:
        """The differences between the closed rows of the live table and of the rebuilt one."""
        live = self._target.live()
        both = [c for c in live.columns if c in self._made.columns]
        difference = self._target.difference(self._settled(self._made).select(both), self._settled(live).select(both))
        return difference.persist()

    @cached_property
    def _target(self) -> PublishedTable:
        return PublishedTable.of_table(self.live.spark, self.live.lake, self.table)

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
        """Filters rows to those that neither lake is about to change."""
        from pyspark.sql import functions as F

        column = self.table.closes_at or self.table.event_time
        if self._bound_ms is None or column is None or column not in rows.columns:
            return rows
        return rows.where(F.col(column).cast("timestamp") < instant_of(self._bound_ms))

    @cached_property
    def _watermark_ms(self) -> int | None:
        """The watermark before which both streams have closed their rows, epoch milliseconds."""
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
        """Returns the earliest event time of records that only the live platform has ingested, or None."""
        from pyspark.sql import functions as F

        instants: list[int | None] = []
        for name, topic in self.shadow.registry.topics.items():
            here, there = (read_ingested_offsets(platform.lake, topic).ends for platform in (self.live, self.shadow))
            beyond = {p: (there.get(p, 0), end) for p, end in here.items() if end > there.get(p, 0)}
            if beyond:
                rows = self.live.lake.frame(self.live.spark, name).where(condition(beyond, PARTITION, OFFSET))
                instants += rows.agg(F.min(F.unix_millis(topic.event_time))).collect()[0]
        return min((ms for ms in instants if ms is not None), default=None)
