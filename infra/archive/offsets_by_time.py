"""Offsets by time, from the time indexes of archived segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from infra.archive.format.segment_indexes import time_index
from infra.archive.read_plan import Archive, Bounds
from infra.archive.segment_manifest import ArchivedPartition, Piece
from infra.archive.segment_reader import Part, batches_of, read_all
from infra.errors import NotArchived
from infra.kafka.record_columns import schema

_SEARCHED = ("offset", "timestamp")


def between(archive: Archive, topic: str, start_ms: int, end_ms: int) -> dict[int, tuple[int, int]]:
    """The offsets of each archived partition from its first record of `start_ms` or later to that of `end_ms`.

    Where records are out of order, some of the time between can be outside, as with a Kafka consumer that seeks
    by time. A hole of the archive counts to the range where the first or last of it can be in the hole: a plan of
    the range names it then.

    Args:
        start_ms: milliseconds since 1970, as is `end_ms`.

    Raises:
        NotArchived: no record of `end_ms` or later is archived yet, so that records may be missing.
        CorruptSegment: of an index, or of the batches that are searched.
        ArchiveUnreachable: retryable.
    """
    ranges = {}
    for partition, runs in archive.runs(topic).items():
        found = archive.partitions[topic][partition]
        last = first_since(archive, found, runs, end_ms)
        if last is None:
            raise NotArchived(
                f"{topic}, partition {partition}: the archive reaches up to offset {runs[-1].end}, its frontier, and "
                f"has no record of {end_ms} ms since 1970 or later.",
                hint="Ask for an earlier time, or wait until the broker closes and copies more.",
                topic=topic,
                partition=partition,
                frontier=runs[-1].end,
            )
        first = first_since(archive, found, runs, start_ms) or last
        ranges[partition] = min(first.start, last.end), last.end
    return ranges


def first_since(archive: Archive, found: ArchivedPartition, runs: Sequence[Bounds], time_ms: int) -> Bounds | None:
    """The first archived record whose timestamp is not before a time, `end`, and the first that may be it, `start`.

    They differ where all that is archived before a hole is older, and nothing behind it is.

    Args:
        runs: what can be read of the partition.
    """
    before = None
    for run in runs:
        offset = _first_of_run(archive, found, run, time_ms)
        if offset is not None:
            return Bounds(start=before if before is not None and offset == run.start else offset, end=offset)
        before = run.end
    return None


def _first_of_run(archive: Archive, found: ArchivedPartition, run: Bounds, time_ms: int) -> int | None:
    for piece in found.run(run.start):
        if piece.segment.max_timestamp_ms < time_ms or piece.start >= run.end:
            continue
        for low, high in _where(archive, piece, time_ms):
            offset = _first_in(archive, piece, max(low, piece.start), min(high, piece.end, run.end), time_ms)
            if offset is not None:
                return offset
    return None


def _where(archive: Archive, piece: Piece, time_ms: int) -> list[tuple[int, int]]:
    """Offsets to search, in this order: most likely up to the index's next entry, or else up to the end."""
    timestamps, offsets = time_index(archive.store, piece.segment)
    at = int(np.searchsorted(timestamps, time_ms, side="left"))
    near = int(offsets[at]) + 1 if at < len(offsets) else piece.end
    if not at:
        return [(piece.start, near), (near, piece.end)]
    before = int(offsets[at - 1])
    if piece.start <= before < piece.end:
        _check_entry(archive, piece, before, int(timestamps[at - 1]))
    return [(before + 1, near), (near, piece.end)]


def _check_entry(archive: Archive, piece: Piece, offset: int, timestamp_ms: int) -> None:
    """The index has no checksum: the batch that an entry names must be the one that brought its timestamp."""
    for part in _parts(archive, piece, offset, offset + 1):
        for batches in batches_of(part, archive.store):
            for index in np.flatnonzero((batches.base <= offset) & (batches.last >= offset)):
                if batches.headers["max_timestamp"][index] != timestamp_ms:
                    raise batches.corrupt(int(index), f"the time index has {timestamp_ms} ms for it")


def _parts(archive: Archive, piece: Piece, low: int, high: int) -> list[Part]:
    return archive.plan({piece.segment.topic: {piece.segment.partition: (low, high)}})


def _first_in(archive: Archive, piece: Piece, low: int, high: int, time_ms: int) -> int | None:
    if low >= high:
        return None
    # To the end, although the first hit is the answer: what is visible is certain only then.
    records = pa.Table.from_batches(
        read_all(_parts(archive, piece, low, high), archive.store, _SEARCHED), schema(_SEARCHED)
    )
    hits = np.flatnonzero(records["timestamp"].cast(pa.int64()).to_numpy() >= time_ms * 1000)
    return int(records["offset"][int(hits[0])].as_py()) if len(hits) else None
