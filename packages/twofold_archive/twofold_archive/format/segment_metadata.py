"""Parses the broker's records about archived segments, topic `__remote_log_metadata`.

A value is three unsigned varints, the version of this framing, the kind of the record and its version. Then comes the
record as Kafka's protocol generator serializes it ("flexible": compact strings and arrays, tagged fields at the end).
Kafka's `storage/src/main/resources/message/RemoteLogSegmentMetadataRecord.json` and its neighbours define the kinds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from twofold_archive.format.archive_errors import UnknownMetadata
from twofold_archive.format.segment import Segment

TOPIC = "__remote_log_metadata"
State = Literal["copy_started", "copied", "delete_started", "deleted"]

_STATES: tuple[State, ...] = ("copy_started", "copied", "delete_started", "deleted")
_ANNOUNCED, _UPDATED, _PARTITION_DELETED = range(3)
_EMPTY_ABORTS = 0  # the tag under which a segment says that its index of aborted transactions is empty


@dataclass(frozen=True, kw_only=True)
class Announced:
    """A segment, in the state that it has by this record."""

    segment: Segment
    state: State


@dataclass(frozen=True, kw_only=True)
class Updated:
    """A segment that was announced before has another state."""

    id: UUID
    state: State
    custom: bytes | None


@dataclass(frozen=True, kw_only=True)
class PartitionDeleted:
    """The segments of a partition are being deleted, or were deleted."""

    topic_id: UUID
    partition: int


Record = Announced | Updated | PartitionDeleted


def parse(value: bytes) -> Record:
    """Parses one metadata record.

    Raises:
        UnknownMetadata: it is of another kind or version, or cut off.
    """
    cursor = _Cursor(value)
    try:
        framing, kind, version = cursor.varint(), cursor.varint(), cursor.varint()
        if (framing, version) != (1, 0) or kind not in (_ANNOUNCED, _UPDATED, _PARTITION_DELETED):
            raise _unknown(value, f"of kind {kind}, version {version}, framing {framing}")
        if kind == _ANNOUNCED:
            return _announced(cursor)
        if kind == _UPDATED:
            return _updated(cursor)
        _, topic_id, partition = cursor.topic_partition()
        return PartitionDeleted(topic_id=topic_id, partition=partition)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise _unknown(value, f"not what such a record holds ({error})") from error


def _announced(cursor: _Cursor) -> Announced:
    topic, topic_id, partition = cursor.topic_partition()
    identity = cursor.segment_id()
    start, last = cursor.number("q"), cursor.number("q")
    cursor.number("i")  # the broker
    max_timestamp_ms, copied_ms = cursor.number("q"), cursor.number("q")
    epochs = []
    for _ in range(cursor.varint() - 1):
        epochs.append((cursor.number("i"), cursor.number("q")))
        cursor.tags()
    size, custom, state = cursor.number("i"), cursor.nullable_bytes(), cursor.number("b")
    empty_aborts = cursor.tags().get(_EMPTY_ABORTS) == b"\x01"
    if not epochs or not 0 <= start <= last or size <= 0 or sorted(epochs) != epochs or epochs[0][1] > start:
        raise ValueError(f"offsets {start} to {last}, {size} bytes, leader epochs {epochs}")
    return Announced(
        state=_STATES[state],
        segment=Segment(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            id=identity,
            start=start,
            end=last + 1,
            size=size,
            max_timestamp_ms=max_timestamp_ms,
            epochs=tuple(epochs),
            copied_ms=copied_ms,
            may_have_aborts=not empty_aborts,
            custom=custom,
        ),
    )


def _updated(cursor: _Cursor) -> Updated:
    cursor.topic_partition()
    identity = cursor.segment_id()
    cursor.number("i")  # the broker
    cursor.number("q")  # when
    custom = cursor.nullable_bytes()
    return Updated(id=identity, state=_STATES[cursor.number("b")], custom=custom)


class _Cursor:
    """Reads the fields of a record one after the other; past the end is an IndexError or a struct.error."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def topic_partition(self) -> tuple[str, UUID, int]:
        name = self._take(self.varint() - 1).decode()
        topic_id, partition = UUID(bytes=self._take(16)), self.number("i")
        self.tags()
        return name, topic_id, partition

    def segment_id(self) -> UUID:
        identity = UUID(bytes=self._take(16))
        self.tags()
        return identity

    def number(self, code: str) -> int:
        layout = struct.Struct(">" + code)
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a varint of more than five bytes")

    def nullable_bytes(self) -> bytes | None:
        length = self.varint()
        return self._take(length - 1) if length else None

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self._take(self.varint()) for _ in range(self.varint())}

    def _take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        if length < 0 or len(taken) != length:
            raise IndexError(f"{length} bytes announced, {len(taken)} there")
        self._at += length
        return taken


def _unknown(value: bytes, what: str) -> UnknownMetadata:
    return UnknownMetadata(
        f"A record of {TOPIC} is {what}: {value[:40].hex()}.",
        hint="The broker may be newer than Kafka 4.3, whose records this version reads.",
    )
