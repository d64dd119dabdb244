"""Splits a read of the archive into Spark tasks of equal duration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

import msgspec
import pyarrow as pa

from infra.archive.format.segment_store import Store
from infra.archive.read_plan import Archive
from infra.archive.segment_reader import Part, read_all
from infra.kafka.record_columns import schema
from infra.offset_ranges import RangesOf

TASK_BYTES = 16 << 20
PARTS = 4  # of a task, at least, where segments are large against what is read
LEAST_PART_BYTES = 256 << 10


@dataclass(frozen=True, kw_only=True)
class _Work:
    """All that a task needs to know."""

    store: Store
    columns: list[str]
    parts: list[Part]


def tasks(archive: Archive, ranges: RangesOf, columns: Sequence[str], cores: int) -> list[bytes]:
    """The offsets `[from, to)` of partitions as work for `read_task`.

    Raises:
        BadArgument: a column that archived records do not have.
        as Archive.plan.
    """
    names = list(schema(columns).names)
    groups = grouped(fine(archive, ranges, 2 * cores), 2 * cores)
    return [msgspec.json.encode(_Work(store=archive.store, columns=names, parts=parts)) for parts in groups]


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """The records of a task, in the log's order; raises as `read`."""
    work = msgspec.json.decode(task, type=_Work)
    yield from read_all(work.parts, work.store, work.columns)


def fine(archive: Archive, ranges: RangesOf, least: int) -> list[Part]:
    """The parts of ranges, small enough that `least` groups of them can be about equal.

    Six segments make two groups of one and two of two, so that one of two cores ends a quarter of the time earlier.

    Raises:
        as Archive.plan.
    """
    parts = archive.plan(ranges)
    largest = max(LEAST_PART_BYTES, sum(map(_bytes, parts)) // (PARTS * least))
    # Halves of what is a little too large would not be worth their indexes.
    if all(_bytes(part) <= 2 * largest for part in parts):
        return parts
    return archive.plan(ranges, largest)


def grouped(parts: Sequence[Part], least: int) -> list[list[Part]]:
    """Parts that follow each other, in groups of about equal bytes, up to TASK_BYTES, so that all cores end together.

    Args:
        least: so many groups, or a multiple of it, where there are parts enough.
    """
    sizes = [_bytes(part) for part in parts]
    total = max(1, sum(sizes))
    count = least * ceil(total / (TASK_BYTES * least))
    groups: dict[int, list[Part]] = {}
    for part, before, size in zip(parts, accumulate(sizes, initial=0), sizes, strict=False):
        groups.setdefault((2 * before + size) * count // (2 * total), []).append(part)
    return list(groups.values())


def _bytes(part: Part) -> int:
    return part.stop - part.position
