"""One archived segment as the broker's metadata describe it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from uuid import UUID

from twofold_archive.format.archive_errors import CorruptSegment

Epochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A closed piece of one partition's log, copied as it was.

    Args:
        start: offset of its first record.
        end: offset after its last one.
        size: bytes of its log file.
        max_timestamp_ms: greatest timestamp of its records.
        epochs: (leader epoch, first offset of that epoch in this segment), ascending.
        copied_ms: when the broker announced it, by the broker's clock.
        may_have_aborts: False when the broker knows that its index of aborted transactions is empty.
        custom: what the storage plugin remembers of it.
    """

    topic: str
    topic_id: UUID
    partition: int
    id: UUID
    start: int
    end: int
    size: int
    max_timestamp_ms: int
    epochs: Epochs
    copied_ms: int
    may_have_aborts: bool = True
    custom: bytes | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}/{self.start:020d}-{kafka_id(self.id)}"

    def corrupt(self, reason: str, *, offset: int | None = None, position: int | None = None) -> CorruptSegment:
        """Builds the error about a damaged segment.

        Args:
            offset: base offset of the batch with the fault, as written there.
            position: byte of the log file at which that batch begins.
        """
        where = "" if offset is None else f", batch at offset {offset}"
        where += "" if position is None else f", byte {position}"
        return CorruptSegment(
            f"Archived segment {self}{where}: {reason}.",
            hint="Compare the file with a copy of the archive, or with the broker's own log while it has it.",
            segment=str(self),
            batch_offset=offset,
            position=position,
            reason=reason,
        )


def kafka_id(identity: UUID) -> str:
    """Formats a UUID as Kafka does: 22 characters."""
    return base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
