"""Index files of archived segments: offsets, aborted and open transactions.

Formats: Kafka's `OffsetIndex`, `TransactionIndex` and `ProducerStateManager`; numbers are big-endian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_store import Store

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_ABORTED = np.dtype([("version", ">i2"), ("producer", ">i8"), ("first", ">i8"), ("last", ">i8"), ("stable", ">i8")])
_SNAPSHOT_HEADER = np.dtype([("version", ">i2"), ("crc", ">u4"), ("count", ">i4")])
_PRODUCER = np.dtype(
    [
        ("producer", ">i8"),
        ("epoch", ">i2"),
        ("sequence", ">i4"),
        ("last", ">i8"),
        ("delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator", ">i4"),
        ("transaction", ">i8"),
    ]
)
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Aborted:
    """A transaction that was aborted: its producer, its first offset, and that of its marker."""

    producer: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class OffsetIndex:
    """Index entries, some thousand bytes apart: no batch that begins before `positions[i]` goes beyond `offsets[i]`.

    The batch that begins there holds that offset; in logs of old brokers it may end before it.
    """

    offsets: _Numbers
    positions: _Numbers

    def before(self, offset: int) -> tuple[int, int | None]:
        """Returns the byte at which to start reading for `offset`, and its offset in the index; None at byte 0."""
        at = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return (int(self.positions[at]), int(self.offsets[at])) if at >= 0 else (0, None)

    def offset_at(self, position: int) -> int | None:
        """Returns the offset after the first indexed batch at or after a byte position; None if there is none."""
        at = int(np.searchsorted(self.positions, position, side="left"))
        return int(self.offsets[at]) + 1 if at < len(self.positions) else None

    def after(self, offset: int, size: int) -> int:
        """Returns a byte position from which all batches hold only offsets >= `offset`; `size` if none is known."""
        at = int(np.searchsorted(self.offsets, offset - 1, side="left")) + 1
        return int(self.positions[at]) if at < len(self.positions) else size


def offset_index(store: Store, segment: Segment) -> OffsetIndex:
    """Reads the segment's offset index.

    Raises:
        CorruptSegment: it is missing, cut off, out of order or points out of the segment.
    """
    entries = _entries(store, segment, "index", _OFFSET_ENTRY)
    offsets = entries["offset"].astype(np.int64) + segment.start
    positions = entries["position"].astype(np.int64)
    ascending = bool((np.diff(offsets) > 0).all() and (np.diff(positions) > 0).all())
    inside = not len(entries) or (
        offsets[0] >= segment.start and offsets[-1] < segment.end and positions[0] > 0 and positions[-1] < segment.size
    )
    if not (ascending and inside):
        raise segment.corrupt("its offset index is out of order or points out of the segment")
    return OffsetIndex(offsets=offsets, positions=positions)


def aborted_transactions(store: Store, segment: Segment) -> list[Aborted]:
    """Reads the transactions whose abort marker is in this segment.

    Raises:
        CorruptSegment: the index is missing or empty although it should not be, cut off, or of other segments.
    """
    entries = _entries(store, segment, "txnindex", _ABORTED)
    first, last = entries["first"].astype(np.int64), entries["last"].astype(np.int64)
    wrong = (entries["version"] != 0) | (first < 0) | (first > last) | (last < segment.start) | (last >= segment.end)
    if not len(entries) or wrong.any() or not (np.diff(last) > 0).all():
        raise segment.corrupt("its index of aborted transactions has none, or others than end in it")
    return [Aborted(producer=int(e["producer"]), first=int(e["first"]), last=int(e["last"])) for e in entries]


def open_transactions(store: Store, segment: Segment) -> list[int]:
    """Reads the first offsets of the transactions that are open at the segment's end.

    Raises:
        CorruptSegment: the producers' snapshot is missing, cut off, or fails its checksum.
    """
    data = store.read(segment, "snapshot")
    if len(data) >= _SNAPSHOT_HEADER.itemsize:
        header = np.frombuffer(data, _SNAPSHOT_HEADER, count=1)[0]
        producers = data[_SNAPSHOT_HEADER.itemsize :]
        if (
            header["version"] == 1
            and header["crc"] == crc32c(data[6:])
            and len(producers) == header["count"] * _PRODUCER.itemsize
        ):
            first = np.frombuffer(producers, _PRODUCER)["transaction"]
            return sorted(int(offset) for offset in first[first >= 0])
    raise segment.corrupt("its snapshot of producers is cut off or fails its checksum")


def _entries(store: Store, segment: Segment, kind: str, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    data = store.read(segment, kind)  # type: ignore[arg-type]
    if len(data) % dtype.itemsize:
        raise segment.corrupt(f"its {kind} has {len(data)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(data, dtype)
