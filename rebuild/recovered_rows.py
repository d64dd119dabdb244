"""Compares the rows of a recovered stream with those that the lost stream wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from batch.reconcile import Reconcile
from batch.unexplained import differences_of
from rebuild.promotion import Comparison
from tables.engine.declarations.declaration import Table
from tables.engine.delta.delta_writer import CHANGE
from tables.engine.refresh.open_platform import Platform
from tables.engine.refresh.scope import from_epoch_ms
from tables.engine.refresh.streaming_checkpoint import Checkpoint
from tables.engine.refresh.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compare_recovered_rows(live: Platform, in_shadow: Platform, table: Table, *, with_open: bool) -> Comparison:
    """Rows that the new stream has closed, once it was corrected as the live table was; with the open ones, all.

    Closed rows of a table that drops late records are left out: which records were late depends on how the
    stream cut its inputs, which is no longer known.
    """
    from pyspark.sql import functions as F

    corrected = table.late == "correct"
    if corrected:
        Reconcile(in_shadow, table).run(verify=False)
    bound = from_epoch_ms(Checkpoint.of_table(in_shadow.lake.settings, table).watermark_ms() or 0)
    is_open = F.col(str(table.closes_at)) >= F.lit(bound)

    def compared(platform: Platform) -> DataFrame:
        rows = platform.lake.frame(live.spark, table.full_name)
        return rows.where((is_open & F.lit(with_open)) | (~is_open & F.lit(corrected)))

    made = compared(in_shadow)
    changes = pa.table(Target.of_table(live.spark, live.lake, table).difference(made, compared(live)).toArrow())
    kinds = changes[CHANGE].to_pylist()
    return Comparison(
        table=table.full_name,
        rows=made.count(),
        missing=kinds.count("insert"),
        extra=kinds.count("delete"),
        changed=kinds.count("update"),
        examples=differences_of(table, changes.slice(0, 5)),
        before=None if with_open else bound,
    )
