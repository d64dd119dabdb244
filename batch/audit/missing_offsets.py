"""Finds the offsets at which a log has no record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.offset_ranges import Range, Ranges
from tables.engine.events.record_decoder import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE = "_before"


def missing_offsets(records: DataFrame, ranges: Ranges) -> dict[int, list[Range]]:
    """The offsets of ranges that no record has, by partition, as ranges in order.

    Args:
        records: with the columns `_partition` and `_offset`, all of them within the ranges.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    edges = [(partition, edge) for partition, (start, end) in ranges.items() for edge in (start - 1, end)]
    around = records.sparkSession.createDataFrame(edges, f"{PARTITION} int, {OFFSET} bigint")
    offsets = records.select(PARTITION, OFFSET).unionByName(around)
    in_order = Window.partitionBy(PARTITION).orderBy(OFFSET)
    behind_holes = offsets.withColumn(_BEFORE, F.lag(OFFSET).over(in_order)).where(f"{OFFSET} > {_BEFORE} + 1")
    found: dict[int, list[Range]] = {}
    for row in behind_holes.orderBy(PARTITION, OFFSET).toArrow().to_pylist():
        found.setdefault(row[PARTITION], []).append((row[_BEFORE] + 1, row[OFFSET]))
    return found
