"""The Spark data source `archive`: archived records as a batch DataFrame, like those of the source `kafka`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from infra.archive.plan import Archive
from infra.archive.read import Part, read_all
from infra.archive.rows import COLUMNS, schema
from infra.archive.store import Store
from infra.ranges import RangesOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "archive"
TASK_BYTES = 16 << 20
_PLAN = "plan"


def frame(spark: SparkSession, archive: Archive, ranges: RangesOf, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """The archived records of the offsets `[from, to)` of partitions.

    Each part of the plan is a Spark partition; parts so small that starting a task would cost more than reading them
    share one.

    Columns that are not named are not even made. Damage is found while rows are read and fails the Spark job with the
    text of the CorruptSegment.

    Raises:
        BadArgument: a column that archived records do not have.
        as Archive.plan: before a job starts.
    """
    parts = archive.plan(ranges)
    tasks = grouped(parts, 2 * spark.sparkContext.defaultParallelism)
    work = _Work(store=archive.store, columns=list(schema(columns).names), tasks=tasks)
    spark.dataSource.register(ArchiveSource)
    return spark.read.format(NAME).option(_PLAN, msgspec.json.encode(work).decode()).load()


@dataclass(frozen=True, kw_only=True)
class _Work:
    """All that the source needs to know, as text between processes."""

    store: Store
    columns: list[str]
    tasks: list[list[Part]]


def grouped(parts: Sequence[Part], least: int) -> list[list[Part]]:
    """Parts that follow each other, in groups of about equal bytes, up to TASK_BYTES, so that all cores end together.

    Args:
        least: so many groups, or a multiple of it, where there are parts enough.
    """
    sizes = [part.stop - part.position for part in parts]
    total = max(1, sum(sizes))
    count = least * ceil(total / (TASK_BYTES * least))
    groups: dict[int, list[Part]] = {}
    for part, before, size in zip(parts, accumulate(sizes, initial=0), sizes, strict=False):
        groups.setdefault((2 * before + size) * count // (2 * total), []).append(part)
    return list(groups.values())


class ArchiveSource(DataSource):
    """Reads what `frame` planned."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(schema(self._work().columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._work())

    def _work(self) -> _Work:
        return msgspec.json.decode(self.options[_PLAN], type=_Work)


class _Task(InputPartition):
    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


class _Reader(DataSourceReader):
    def __init__(self, work: _Work) -> None:
        self._store, self._columns, self._tasks = work.store, work.columns, work.tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(parts) for parts in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, _Task):
            yield from read_all(partition.parts, self._store, self._columns)
