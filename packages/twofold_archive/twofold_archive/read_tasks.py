"""Splits a read of the archive into tasks of equal duration, for other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

import msgspec
import pyarrow as pa

from twofold_archive.format.record_columns import schema
from twofold_archive.format.segment_store import Store
from twofold_archive.read_plan import Archive, RangesOf
from twofold_archive.segment_reader import Part, read_all

TASK_BYTES = 16 << 20
PARTS = 4  # of a task, at least, if segments are large relative to the read
LEAST_PART_BYTES = 256 << 10


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The input of one task."""

    columns: list[str]
    parts: list[Part]


def tasks(archive: Archive, ranges: RangesOf, columns: Sequence[str], cores: int) -> list[bytes]:
    """Splits the offsets `[from, to)` of partitions into serialized inputs for `read_task`.

    Raises:
        BadArgument: a column that archived records do not have.
        as Archive.plan.
    """
    names = list(schema(columns).names)
    groups = grouped(fine(archive, ranges, 2 * cores), 2 * cores)
    return [msgspec.json.encode(_Work(columns=names, parts=parts)) for parts in groups]


def read_task(store: Store, task: bytes) -> Iterator[pa.RecordBatch]:
    """Reads the records of a task, in the order of the log; raises as `read`."""
    work = msgspec.json.decode(task, type=_Work)
    yield from read_all(work.parts, store, work.columns)


def fine(archive: Archive, ranges: RangesOf, least: int) -> list[Part]:
    """Plans the parts of ranges, small enough to form at least `least` groups of about equal size.

    Six segments on two cores, for example, would leave groups of unequal size, and one core idle for a quarter of the
    time.

    Raises:
        as Archive.plan.
    """
    parts = archive.plan(ranges)
    largest = max(LEAST_PART_BYTES, sum(map(_bytes, parts)) // (PARTS * least))
    # Halves of slightly oversized parts would not be worth their indexes.
    if all(_bytes(part) <= 2 * largest for part in parts):
        return parts
    return archive.plan(ranges, largest)


def grouped(parts: Sequence[Part], least: int) -> list[list[Part]]:
    """Groups consecutive parts into groups of about equal bytes, up to TASK_BYTES, so that all cores finish together.

    Args:
        least: the number of groups, if there are enough parts; a multiple of it if groups would exceed TASK_BYTES.
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
