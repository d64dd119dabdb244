"""Keeps which records of a partition are done, and how often others were delivered, as the note of its position."""

from __future__ import annotations

import json

MOST = 150
"""Records after which no more are read; with those of one more poll their note has less than the 4,096 bytes that a
broker takes with a position."""


class PartitionProgress:
    """The records of a partition from its committed position on.

    Args:
        position: the offset of the first record that may not be done.
        note: what was committed with it.
    """

    def __init__(self, position: int, note: str = "") -> None:
        noted: dict[str, int | None] = json.loads(note or "{}")
        self._next = position
        self._deliveries = {position + int(distance): number for distance, number in noted.items()}
        """Offset -> how often it was delivered; None: it is done."""
        self._open = set[int]()

    @property
    def is_full(self) -> bool:
        return len(self._deliveries) >= MOST

    @property
    def done(self) -> int:
        """The number of records that are done after the position."""
        return sum(number is None for number in self._deliveries.values())

    @property
    def begun(self) -> int:
        """The number of records that were delivered, and are not done."""
        return sum(bool(number) for number in self._deliveries.values())

    def admit(self, offset: int) -> bool:
        """Takes up the record that was read next; False if it is done already."""
        self._next = offset + 1
        is_open = self._deliveries.setdefault(offset, 0) is not None
        if is_open:
            self._open.add(offset)
        self._forget()
        return is_open

    def deliveries(self, offset: int) -> int:
        return self._deliveries[offset] or 0

    def deliver(self, offset: int) -> None:
        """Counts a delivery; it may begin once this is committed."""
        self._deliveries[offset] = self.deliveries(offset) + 1

    def withdraw(self, offset: int) -> None:
        """Takes the last delivery back."""
        self._deliveries[offset] = self.deliveries(offset) - 1

    def finish(self, offset: int) -> None:
        """Notes that a record is done."""
        self._deliveries[offset] = None
        self._open.discard(offset)
        self._forget()

    def committed(self) -> tuple[int, str]:
        """Returns the position, which is the offset of the first record that is not done, and its note."""
        position = self._position
        kept = {offset - position: number for offset, number in self._deliveries.items() if number != 0}
        return position, json.dumps(kept, separators=(",", ":")) if kept else ""

    def _forget(self) -> None:
        """Forgets what is before the position, records that are gone included."""
        position = self._position
        self._deliveries = {offset: number for offset, number in self._deliveries.items() if offset >= position}

    @property
    def _position(self) -> int:
        return min(self._open, default=self._next)
