"""Keeps a new stream from rewriting rows that an earlier stream has closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.delta.delta_writer import BEFORE, CHANGE, CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import duckdb_utc
from twofold.infra.spark.spark_literals import instant_of
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.acceptance import STREAM
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ClosedRowGuard:
    """Separates rows that are closed, which belong to the batch, from open rows, which belong to the stream."""

    def __init__(self, checkpoint: Checkpoint, lake: Lake, table: Table) -> None:
        self._file = checkpoint.path.with_name(f"{checkpoint.path.name}.fence")
        self._checkpoint, self._lake, self._table = checkpoint, lake, table

    def record_watermark_once(self) -> None:
        """Records the watermark up to which rows are closed, at the first start of a new checkpoint."""
        if self._checkpoint.is_new:
            self.record_watermark_again()

    def record_watermark_again(self) -> None:
        """Records the watermark up to which rows are closed now."""
        if not self._table.closes_at:
            return
        info = self._lake.newest_info(self._table.full_name, "watermark_ms")
        # A stream that starts over has a low watermark: if the new file is lost, too, the older record is higher.
        watermarks = [ms for ms in (self.closed_before_ms, info["watermark_ms"]) if ms] if info else []
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(str(max(watermarks, default="")))

    def beyond(self, rows: DataFrame) -> DataFrame:
        """Filters rows to those that were still open; a row without a closing time is open."""
        from pyspark.sql import functions as F

        closed_before_ms = self.closed_before_ms
        if closed_before_ms is None or self._table.closes_at is None:
            return rows
        closes = F.col(self._table.closes_at)
        return rows.where((closes >= instant_of(closed_before_ms)) | closes.isNull())

    def reached_by(self, events: DataFrame, topic: Topic) -> DataFrame:
        """Filters events to those from which open rows can be computed."""
        from pyspark.sql import functions as F

        closed_before_ms = self.closed_before_ms
        if closed_before_ms is None or self._table.depends_within_ms is None:
            return events
        # A row closes at most `depends_within` after its own time, and its input rows are as near.
        first_ms = closed_before_ms - 2 * self._table.depends_within_ms
        return events.where(F.col(topic.event_time) >= instant_of(first_ms))

    def delete_open_rows(self, writer: Writer) -> None:
        """Deletes the rows that were still open."""
        closes_at, closed_before_ms = self._table.closes_at, self.closed_before_ms
        if closes_at is None:
            return
        table = writer.newest()
        connection = duckdb_utc()
        connection.register("live", table.scan())
        condition = "true"
        if closed_before_ms is not None:
            at = DUCKDB.name(closes_at)
            condition = f"epoch_us({at}) >= {closed_before_ms * 1_000} OR {at} IS NULL"
        rows = connection.sql(f"FROM live WHERE {condition}").to_arrow_table().cast(pa.schema(table.schema()))
        changes = rows.append_column(CHANGE, pa.repeat(pa.scalar("delete"), len(rows)))
        for column in rows.column_names:
            if column not in self._table.primary_key:
                changes = changes.append_column(BEFORE + column, rows[column])
        if len(rows):
            stamp = CommitTag(app=STREAM, version=writer.next_number(STREAM), info={"cause": "stream"})
            writer.apply(changes, self._table.primary_key, stamp)

    @property
    def closed_before_ms(self) -> int | None:
        """Epoch milliseconds: rows that close earlier do not belong to the stream; None: all rows do."""
        text = self._file.read_text() if self._file.exists() else ""
        return int(text) if text else None
