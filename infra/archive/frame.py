"""Archived records as a batch DataFrame, like those of the source `kafka`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from infra.archive.plan import Archive
from infra.archive.rows import COLUMNS, schema
from infra.archive.tasks import read_task, tasks
from infra.ranges import RangesOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, archive: Archive, ranges: RangesOf, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """The archived records of the offsets `[from, to)` of partitions.

    Columns that are not named are not even made. Damage is found while rows are read and fails the Spark job with the
    text of the CorruptSegment.

    Raises:
        as `tasks`: before a job starts.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    context = spark.sparkContext
    work = [(task,) for task in tasks(archive, ranges, columns, context.defaultParallelism)]
    # An RDD, since Spark takes it for large: of a range of few rows it would make a broadcast of a whole log.
    pieces = spark.createDataFrame(context.parallelize(work, max(1, len(work))), "task binary")
    return pieces.mapInArrow(_records, from_arrow_schema(schema(columns)))


def _records(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        for task in piece.column(0).to_pylist():
            yield from read_task(task)
