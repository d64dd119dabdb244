"""Headers of record batches (format version 2): found in raw bytes, checked against each other and the segment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from twofold_archive.format.archive_errors import CorruptSegment
from twofold_archive.format.record_parser import NOT_APPENDED
from twofold_archive.format.segment import Segment

Headers = npt.NDArray[np.void]

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("count", ">i4"),
    ]
)
HEADER_BYTES = _HEADER.itemsize
CHECKED_FROM = 21  # the checksum covers the bytes from the attributes on
_LENGTH_COUNTS_FROM = 12  # the leader epoch
MAX_BATCH_BYTES = 64 << 20  # as written, and again decompressed; brokers accept 1 MiB unless configured otherwise

TRANSACTIONAL, CONTROL = 0x10, 0x20
_LOG_APPEND_TIME = 0x08
_CODEC = 0x07
_MISSING = "offsets before it or in it are missing"


class Batches:
    """Whole batches at the front of some bytes of a segment's log.

    Args:
        data: bytes of the log from `position` on.

    Raises:
        CorruptSegment: no batch begins at an expected position, or one is longer than the rest of the log.
    """

    def __init__(self, segment: Segment, data: memoryview, position: int) -> None:
        self._segment, self.data, self._position = segment, data, position
        self.next_base: int | None = None  # of the batch that follows, when its header is here
        self.starts = np.array(self._walk(), np.int64)
        raw = np.frombuffer(data, np.uint8)
        self.headers: Headers = raw[self.starts[:, None] + np.arange(HEADER_BYTES)].view(_HEADER)[:, 0]
        self.base = self.headers["base_offset"].astype(np.int64)
        self.last = self.base + self.headers["last_delta"]
        self.ends = self.starts + _LENGTH_COUNTS_FROM + self.headers["length"]
        self.attributes = self.headers["attributes"].astype(np.int64)
        self.codecs = self.attributes & _CODEC

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def next_position(self) -> int:
        """The byte of the log after these batches."""
        return self._position + (int(self.ends[-1]) if len(self) else 0)

    def missing(self) -> int:
        """Returns the size in bytes of the first batch, if it is not here as a whole."""
        length = int.from_bytes(self.data[8:_LENGTH_COUNTS_FROM], "big")
        return _LENGTH_COUNTS_FROM + length if len(self.data) >= HEADER_BYTES else HEADER_BYTES

    def reach(self, offset: int) -> bool:
        """Whether one of them, or the one that follows, begins at `offset` or after it."""
        begin = [*self.base[-1:].tolist(), *([] if self.next_base is None else [self.next_base])]
        return bool(begin) and begin[-1] >= offset

    def check(self, *, after: int | None, contiguous: bool) -> None:
        """Validates the headers against each other and against the segment.

        Args:
            after: offset after the batch before these; None when it is not known.
            contiguous: no offset may be missing, as in a log that was never compacted.

        Raises:
            CorruptSegment: at the first batch that breaks a rule.
        """
        expected = int(self.last[-1]) + 1 if len(self) else after
        if contiguous and expected is not None and self.next_base not in (None, expected):
            raise self._segment.corrupt(_MISSING, offset=self.next_base, position=self.next_position)
        if not len(self):
            return
        count, deltas = self.headers["count"].astype(np.int64), self.headers["last_delta"].astype(np.int64)
        follows = np.empty(len(self), np.int64)
        follows[0] = self.base[0] if after is None else after
        follows[1:] = self.last[:-1] + 1
        self._refuse((count < 0) | (deltas < 0) | (count > deltas + 1), "its number of records cannot be")
        self._refuse((self.base < self._segment.start) | (self.last >= self._segment.end), "it is not of this segment")
        self._refuse(self.base < follows, "its offsets were there before")
        if contiguous:
            self._refuse((self.base != follows) | (count != deltas + 1), _MISSING)
        self._refuse(self.headers["leader_epoch"] != self._epochs(), "its leader epoch is not that of its offset")

    def table(self, indices: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Builds the input of `record_parser.parse`: positions of the batches' records in `data`, and header fields."""
        headers = self.headers[indices]
        by_append = (self.attributes[indices] & _LOG_APPEND_TIME) != 0
        columns = (
            self.starts[indices] + HEADER_BYTES,
            self.ends[indices],
            self.base[indices],
            headers["base_timestamp"],
            np.where(by_append, headers["max_timestamp"], NOT_APPENDED),
            headers["count"],
            headers["last_delta"],
        )
        return np.stack(columns, axis=1).astype(np.int64)

    def at(self, index: int) -> tuple[int, int]:
        """Returns the base offset and the byte position of a batch."""
        return int(self.base[index]), self._position + int(self.starts[index])

    def corrupt(self, index: int, reason: str) -> CorruptSegment:
        """Builds the error about a batch."""
        offset, position = self.at(index)
        return self._segment.corrupt(reason, offset=offset, position=position)

    def _refuse(self, wrong: npt.NDArray[np.bool_], reason: str) -> None:
        if wrong.any():
            raise self.corrupt(int(np.argmax(wrong)), reason)

    def _epochs(self) -> npt.NDArray[np.int64]:
        epochs = np.array(self._segment.epochs, np.int64)
        own: npt.NDArray[np.int64] = epochs[np.searchsorted(epochs[:, 1], self.base, side="right") - 1, 0]
        return own

    def _walk(self) -> list[int]:
        """Finds the positions of the batches that are in the buffer as a whole."""
        starts, at, data = [], 0, self.data
        while at + HEADER_BYTES <= len(data):
            length = int.from_bytes(data[at + 8 : at + _LENGTH_COUNTS_FROM], "big", signed=True)
            reason = _no_batch(length, data[at + 16], self._segment.size - self._position - at)
            if reason is not None:
                offset = int.from_bytes(data[at : at + 8], "big", signed=True)
                raise self._segment.corrupt(reason, offset=offset, position=self._position + at)
            if at + _LENGTH_COUNTS_FROM + length > len(data):
                self.next_base = int.from_bytes(data[at : at + 8], "big", signed=True)
                break
            starts.append(at)
            at += _LENGTH_COUNTS_FROM + length
        if at < len(data) < at + HEADER_BYTES and self._position + len(data) == self._segment.size:
            raise self._segment.corrupt(f"its last {len(data) - at} bytes are no batch", position=self._position + at)
        return starts


def _no_batch(length: int, magic: int, left: int) -> str | None:
    """Explains why no batch can have this length and format with `left` bytes of the log left; None if one can."""
    if magic != 2:
        return f"it is of format {magic}; only format 2 is read"
    if length < HEADER_BYTES - _LENGTH_COUNTS_FROM:
        return f"its length of {length} is less than that of a header"
    if _LENGTH_COUNTS_FROM + length > left:
        return f"its length of {length} goes beyond the end of the segment, {left} bytes on"
    if length > MAX_BATCH_BYTES:
        return f"its length of {length} is more than the {MAX_BATCH_BYTES} that are read"
    return None
