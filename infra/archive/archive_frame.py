"""Archived records as a batch DataFrame, like those of the source `kafka`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold_archive.format.record_columns import COLUMNS, schema
from twofold_archive.format.segment_store import Store
from twofold_archive.read_plan import Archive, RangesOf
from twofold_archive.read_tasks import read_task, tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, archive: Archive, ranges: RangesOf, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """Reads the archived records with offsets `[from, to)` of each partition as a DataFrame.

    Only the named columns are built. Damage is found while rows are read and fails the Spark job with the text of the
    CorruptSegment.

    Raises:
        as `tasks`: before a job starts.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    at_once = int(spark.conf.get("spark.sql.leafNodeDefaultParallelism", None) or os.cpu_count() or 1)
    work = list(tasks(archive, ranges, columns, at_once))
    # Spark estimates a log by the few numbers that it is read from, and would broadcast all of it to join it.
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    numbers = spark.range(0, len(work), 1, max(1, len(work)))
    return numbers.mapInArrow(partial(_records, archive.store, work), from_arrow_schema(schema(columns)))


def _records(store: Store, work: Sequence[bytes], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for piece in numbers:
        for number in piece.column(0).to_pylist():
            yield from read_task(store, work[number])
