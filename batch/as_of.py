"""Recomputes a table as of a point of the log, from the records before it, by the current definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.batch.offset_selection import LogPosition, OffsetSelection
from twofold.infra.errors import BadArgument
from twofold.infra.spark.spark_literals import instant_of
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.derived_rows import derive_over, one_of_each_key
from twofold.tables.refresh.open_platform import Platform
from twofold_algebra.sql.names import SPARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FINAL = "_final"


@dataclass(frozen=True)
class AsOf:
    """Computes tables from the records before a cut.

    Late records before the cut are included, whether corrected since or not: a table is a function of a prefix of the
    log. Events are read as they are now, so that corrections by a replay are included.

    Attributes:
        before: topic -> the first excluded offsets; or the time by which the broker had received the included records.
    """

    platform: Platform
    before: Mapping[str, LogPosition]

    def rows(self, table: Table) -> DataFrame:
        """Computes the table's rows, and `_final`: whether a row had closed by then; true for tables that never close.

        Raises:
            BadArgument: offsets of a topic that the table does not read, or none of one that it reads.
        """
        self._require_all_topics(table)
        return self._derived(table)

    def _derived(self, table: Table) -> DataFrame:
        from pyspark.sql import functions as F

        def before(source: Topic | Table) -> DataFrame:
            return self._derived(source).drop(FINAL) if isinstance(source, Table) else self._events(source)

        registry = self.platform.registry
        is_final = F.lit(True) if table.closes_at is None else self._is_closed(table, table.closes_at)
        rows = derive_over(registry, table, before).withColumn(FINAL, is_final)
        # If a key has closed rows, one of these stays, as in the table after a reconcile.
        return one_of_each_key(rows, table, registry.strategy(table), closed=FINAL)

    def _is_closed(self, table: Table, closes_at: str) -> Column:
        from pyspark.sql import functions as F

        watermark_ms = self._watermark_ms(table)
        if watermark_ms is None:
            return F.lit(False)
        return F.coalesce(F.col(closes_at) < instant_of(watermark_ms), F.lit(False))

    def _events(self, topic: Topic) -> DataFrame:
        span = OffsetSelection.before(self.before[topic.full_name])
        return self.platform.lake.frame(self.platform.spark, topic.full_name).where(span.sql(SPARK))

    def _watermark_ms(self, table: Table) -> int | None:
        """Returns the watermark of a stream that had read just these records, epoch milliseconds."""
        from pyspark.sql import functions as F

        newest: list[int | None] = []
        for source in self.platform.registry.upstream(table):
            if isinstance(source, Topic):
                newest += self._events(source).agg(F.max(F.unix_millis(source.event_time))).collect()[0]
        instants = [ms for ms in newest if ms is not None]
        return min(instants) - table.watermark_ms if instants and len(instants) == len(newest) else None

    def _require_all_topics(self, table: Table) -> None:
        needed, given = set(self.platform.registry.above(table).topics), set(self.before)
        if needed != given:
            raise BadArgument(
                f"{table.full_name} is computed from {', '.join(sorted(needed))}; offsets were given of "
                f"{', '.join(sorted(given)) or 'none'}.",
                hint="Give offsets for each of these topics, or an instant, which holds for all.",
            )
