"""Reads a part of an archived segment: bytes to batches to Arrow, with every check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from twofold_archive.format import codecs, record_columns, record_parser, record_rows
from twofold_archive.format.compiled import Bytes
from twofold_archive.format.record_batches import CHECKED_FROM, CONTROL, HEADER_BYTES, MAX_BATCH_BYTES, Batches
from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_indexes import Aborted
from twofold_archive.format.segment_store import Store
from twofold_archive.format.transaction_visibility import Visibility

WINDOW_BYTES = 8 << 20  # read at once
_BEYOND_BYTES = 256 << 10  # read at once to see how a transaction ends behind a part
_ARENA_BYTES = 2 << 20  # decompressed at once, unless one batch needs more


@dataclass(frozen=True, kw_only=True)
class Part:
    """Offsets `[start, end)` of a segment with their byte positions: the unit that one task reads.

    Args:
        position: the byte at which to begin; a batch begins there.
        anchor: an offset before which the batch at `position` begins, from the offset index; None at byte 0.
        stop: a byte after which the part has no batch.
        aborted: transactions of the segment that are invisible.
        contiguous: no offset may be missing, as in a log that was never compacted.
    """

    segment: Segment
    start: int
    end: int
    position: int
    anchor: int | None
    stop: int
    aborted: tuple[Aborted, ...]
    contiguous: bool


def read(part: Part, store: Store, columns: Sequence[str] = record_columns.COLUMNS) -> Iterator[pa.RecordBatch]:
    """Yields the part's committed records in the order of their offsets, without markers.

    Raises:
        CorruptSegment: names the segment, the batch and the reason. Rows yielded before must not be used: they are not
            all, and a damaged index of aborted transactions is found only at the end.
    """
    visibility = Visibility(part.segment, part.aborted, (part.start, part.end), complete=part.contiguous)
    arena = _Arena(part, columns)
    for batches in batches_of(part, store, lambda: not visibility.is_settled):
        overlapping = np.flatnonzero((batches.base < part.end) & (batches.last >= part.start))
        markers = np.flatnonzero((batches.base >= part.end) & ((batches.attributes & CONTROL) != 0))
        _hold_against_checksums(batches, overlapping)
        yield from arena.add(batches, visibility.visible(batches, overlapping))
        if not visibility.is_settled:
            _hold_against_checksums(batches, markers)
            visibility.settle(batches, markers)
    visibility.finish()
    yield from arena.rows()


def read_all(
    parts: Iterable[Part], store: Store, columns: Sequence[str] = record_columns.COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yields the records of several parts, in this process; raises as `read`."""
    for part in parts:
        yield from read(part, store, columns)


def batches_of(part: Part, store: Store, more: Callable[[], bool] = lambda: False) -> Iterator[Batches]:
    """Yields the batches that overlap the part, and a few around them, one window of bytes at a time.

    Their headers are checked against each other and the segment, their content is not; raises as `read`.

    Args:
        more: whether batches after the part are requested, too.
    """
    segment = part.segment
    if (size := store.size(segment, "log")) != segment.size:
        raise segment.corrupt(f"its log has {size} bytes, {segment.size} were copied")
    position, after, least = part.position, None if part.position else segment.start, 0
    while position < segment.size:
        # One header beyond the part shows that its last batch is the last.
        left = part.stop + HEADER_BYTES - position if position <= part.stop else _BEYOND_BYTES
        end = min(segment.size, position + max(least, min(WINDOW_BYTES, left)))
        data = memoryview(store.read(segment, "log", position, end))
        if len(data) != end - position:
            raise segment.corrupt(f"its log ends at byte {position + len(data)}, before {end}")
        batches = Batches(segment, data, position)
        batches.check(after=after, contiguous=part.contiguous)
        if len(batches):
            if after is None and part.anchor is not None and batches.base[0] > part.anchor:
                raise batches.corrupt(0, f"the offset index looks for offset {part.anchor} in it")
            yield batches
            position, after, least = batches.next_position, int(batches.last[-1]) + 1, 0
        else:
            least = batches.missing()
        if batches.reach(part.end) and not more():
            return
    if part.contiguous and after != segment.end:
        raise segment.corrupt(f"its log ends before offset {after}, {segment.end} was copied")


def _hold_against_checksums(batches: Batches, wanted: npt.NDArray[np.intp]) -> None:
    checked = (batches.starts[wanted] + CHECKED_FROM).tolist(), batches.ends[wanted].tolist()
    for index, start, end, crc in zip(wanted, *checked, batches.headers["crc"][wanted].tolist(), strict=True):
        if crc32c(batches.data[start:end]) != crc:
            raise batches.corrupt(int(index), "its checksum (CRC-32C) does not match")


class _Arena:
    """A buffer into which batches are decompressed one after the other, then parsed together."""

    def __init__(self, part: Part, columns: Sequence[str]) -> None:
        self._part, self._columns = part, columns
        self._room: Bytes = np.empty(_ARENA_BYTES, np.uint8)
        self._used = 0
        self._growth = 1.0  # bytes of the last batch decompressed, for each compressed one
        self._table: list[list[int]] = []
        self._places: list[tuple[Batches, int]] = []

    def add(self, batches: Batches, indices: npt.NDArray[np.intp]) -> Iterator[pa.RecordBatch]:
        """Adds batches; yields the records of earlier ones whenever the buffer is full."""
        table = batches.table(indices)
        if not batches.codecs[indices].any():  # parsed where they are
            yield from self.rows()
            yield from self._parsed(np.frombuffer(batches.data, np.uint8), table, [(batches, i) for i in indices])
            return
        for index, codec, row in zip(indices.tolist(), batches.codecs[indices].tolist(), table.tolist(), strict=True):
            payload = batches.data[row[record_parser.START] : row[record_parser.END]]
            if self._used and self._growth * len(payload) > len(self._room) - self._used:  # rather than try in vain
                yield from self.rows()
            while (size := self._decompress(batches, index, codec, payload)) is None:
                yield from self.rows()
            self._table.append([self._used, self._used + size, *row[record_parser.END + 1 :]])
            self._places.append((batches, index))
            self._used += size
            self._growth = size / max(1, len(payload))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yields the records of the buffered batches and empties the buffer."""
        table, places = np.array(self._table, np.int64).reshape(len(self._table), record_parser.WIDTH), self._places
        data = self._room[: self._used]
        self._used, self._table, self._places = 0, [], []
        yield from self._parsed(data, table, places)

    def _decompress(self, batches: Batches, index: int, codec: int, payload: memoryview) -> int | None:
        """Decompresses a batch into the free part of the buffer and returns its bytes; None if it does not fit."""
        while True:
            try:
                return codecs.decompress(codec, payload, self._room[self._used :])
            except codecs.DoesNotFit:
                if self._used:
                    return None
                if len(self._room) == MAX_BATCH_BYTES:
                    reason = f"decompressed it is larger than the {MAX_BATCH_BYTES} bytes that are read"
                    raise batches.corrupt(index, reason) from None
                self._room = np.empty(MAX_BATCH_BYTES, np.uint8)
            except codecs.Undecodable as error:
                raise batches.corrupt(index, f"it cannot be decompressed ({error})") from error

    def _parsed(
        self, data: Bytes, table: npt.NDArray[np.int64], places: Sequence[tuple[Batches, int]]
    ) -> Iterator[pa.RecordBatch]:
        part = self._part
        try:
            yield from record_rows.arrow(
                data,
                table,
                topic=part.segment.topic,
                partition=part.segment.partition,
                offsets=(part.start, part.end),
                contiguous=part.contiguous,
                columns=self._columns,
            )
        except record_rows.BadRecords as error:
            batches, index = places[error.batch]
            raise batches.corrupt(index, error.reason) from error
