"""Visibility of record batches to a consumer of committed transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twofold_archive.format.record_batches import CONTROL, HEADER_BYTES, TRANSACTIONAL, Batches
from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_indexes import Aborted

Indices = npt.NDArray[np.intp]

_ABORT, _COMMIT = 0, 1
_ENDS_NOTHING = -1


class Visibility:
    """Decides which batches are visible by the index of aborted transactions, and checks the index against the markers.

    The index has no checksum. A batch therefore stays unsettled until the marker that ends its transaction was read and
    agrees with the index, and a transaction in the index must begin and end at batches. The index alone is trusted only
    if the marker is in a later segment.

    Args:
        offsets: of the batches that will be judged, from and until.
        complete: the log has all batches that it ever had.
    """

    def __init__(
        self, segment: Segment, aborted: Sequence[Aborted], offsets: tuple[int, int], *, complete: bool
    ) -> None:
        self._segment = segment
        self._transactions: dict[int, list[Aborted]] = {}
        for transaction in sorted(aborted, key=lambda a: a.first):
            self._transactions.setdefault(transaction.producer, []).append(transaction)
        met = range(*offsets) if complete else range(0)
        self._unmet = {(a.producer, offset) for a in aborted for offset in (a.first, a.last) if offset in met}
        self._judged: dict[int, Aborted | None] = {}  # by producer, until its marker comes

    @property
    def is_settled(self) -> bool:
        """Whether the transactions of all judged batches have met their markers."""
        return not self._judged

    def visible(self, batches: Batches, wanted: Indices) -> Indices:
        """Filters batches to those with committed records.

        Raises:
            CorruptSegment: the index and the log contradict each other.
        """
        if not (batches.attributes[wanted] & (TRANSACTIONAL | CONTROL)).any():
            return wanted
        return np.array([i for i in wanted.tolist() if self._is_visible(batches, i)], np.intp)

    def settle(self, batches: Batches, markers: Indices) -> None:
        """Processes markers after the requested batches; raises as `visible`."""
        for index in markers.tolist():
            self._end(batches, index, int(batches.headers["producer"][index]))

    def finish(self) -> None:
        """Verifies, after the last batch, that every transaction of the index was seen.

        Raises:
            CorruptSegment: a transaction of the index begins or ends at no batch.
        """
        if self._unmet:
            producer, offset = min(self._unmet, key=lambda u: u[1])
            raise self._segment.corrupt(
                f"its index of aborted transactions has one of producer {producer} that begins or ends where none does",
                offset=offset,
            )

    def _is_visible(self, batches: Batches, index: int) -> bool:
        attributes, base = int(batches.attributes[index]), int(batches.base[index])
        producer = int(batches.headers["producer"][index])
        if attributes & CONTROL:
            self._end(batches, index, producer)
            return False
        if not attributes & TRANSACTIONAL:
            return True
        self._unmet.discard((producer, base))
        aborted = self._judged[producer] = self._aborted_at(producer, base)
        return aborted is None

    def _end(self, batches: Batches, index: int, producer: int) -> None:
        kind, base = _marker(batches, index), int(batches.base[index])
        if kind not in (_ABORT, _COMMIT):
            raise batches.corrupt(index, "it marks neither a commit nor an abort")
        if producer in self._judged:
            aborted = self._judged.pop(producer)
            if kind != (_COMMIT if aborted is None else _ABORT) or (aborted is not None and aborted.last != base):
                raise batches.corrupt(index, "it says otherwise than the index of aborted transactions")
        if kind == _ABORT:
            self._unmet.discard((producer, base))

    def _aborted_at(self, producer: int, offset: int) -> Aborted | None:
        transactions = self._transactions.get(producer, [])
        at = bisect_right(transactions, offset, key=lambda a: a.first) - 1
        return transactions[at] if at >= 0 and transactions[at].last >= offset else None


def _marker(batches: Batches, index: int) -> int:
    """Returns the type of a control batch, commit or abort: the second number of its record's key."""
    record = bytes(batches.data[int(batches.starts[index]) + HEADER_BYTES : int(batches.ends[index])])
    at = 0
    for _ in range(4):  # the record's length, then attributes (a byte), timestamp and offset: one number each
        at = _after_number(record, at)
    key = record[_after_number(record, at) :][:4]
    return int.from_bytes(key[2:4], "big", signed=True) if len(key) == 4 and key[:2] == b"\0\0" else _ENDS_NOTHING


def _after_number(record: bytes, at: int) -> int:
    while at < len(record) and record[at] >= 0x80:
        at += 1
    return at + 1
