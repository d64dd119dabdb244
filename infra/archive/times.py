"""From times to offsets, by the time indexes of archived segments."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from infra.archive.indexes import time_index
from infra.archive.manifest import ArchivedPartition, Piece
from infra.archive.plan import Archive
from infra.archive.read import Part, batches_of, read_all
from infra.archive.rows import schema
from infra.errors import NotArchived

_SEARCHED = ("offset", "timestamp")


def between(archive: Archive, topic: str, start_ms: int, end_ms: int) -> dict[int, tuple[int, int]]:
    """The offsets of each archived partition from its first record of `start_ms` or later to that of `end_ms`.

    Where records are out of order, some from the time between can lie outside, as with a Kafka consumer that seeks
    by time.

    Args:
        start_ms: milliseconds since 1970, as is `end_ms`.

    Raises:
        NotArchived: no record of `end_ms` or later is archived yet, so that records may be missing.
        CorruptSegment: of an index, or of the batches that are searched.
        ArchiveUnreachable: retryable.
    """
    ranges = {}
    for partition, bounds in archive.bounds(topic).items():
        found = archive.partitions[topic][partition]
        end = first_since(archive, found, end_ms, bounds.end)
        if end is None:
            raise NotArchived(
                f"{topic}, partition {partition}: the archive reaches up to offset {bounds.end}, its frontier, and has "
                f"no record of {end_ms} ms since 1970 or later.",
                hint="Ask for an earlier time, or wait until the broker closes and copies more.",
                topic=topic,
                partition=partition,
                frontier=bounds.end,
            )
        start = first_since(archive, found, start_ms, bounds.end)
        ranges[partition] = (end if start is None else min(start, end), end)
    return ranges


def first_since(archive: Archive, found: ArchivedPartition, time_ms: int, frontier: int) -> int | None:
    """The offset of the first record before the frontier whose timestamp is not before a time."""
    for piece in found.pieces:
        if piece.segment.max_timestamp_ms < time_ms or piece.start >= frontier:
            continue
        for low, high in _where(archive, piece, time_ms):
            offset = _first_in(archive, piece, max(low, piece.start), min(high, piece.end, frontier), time_ms)
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
