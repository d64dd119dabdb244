"""Archived logs whose batches an independent writer built: the record builders of kafka-python."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_store import Store
from twofold_archive.format.storage_layout import LocalTieredStorage
from twofold_archive.read_plan import SPLIT_BYTES, Archive
from twofold_archive.segment_manifest import ArchivedPartition, Piece

TOPIC, TOPIC_ID, SEGMENT_ID = "log", UUID(int=7), UUID(int=11)
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ABORT, COMMIT = 0, 1
NOON_MS = 1_356_998_400_000
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, kw_only=True)
class Record:
    key: bytes | None = None
    value: bytes | None = b"v"
    timestamp: int = NOON_MS
    headers: Headers = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A record batch; `deltas` are the places of its records in it, as compaction leaves them."""

    base: int
    records: Sequence[Record]
    codec: int = NONE
    epoch: int = 0
    producer: int = -1
    is_transactional: bool = False
    deltas: Sequence[int] | None = None
    last_delta: int | None = None
    append_time: int | None = None

    @property
    def last(self) -> int:
        deltas = self.deltas if self.deltas is not None else range(len(self.records))
        return self.base + (max(deltas, default=0) if self.last_delta is None else self.last_delta)

    def encode(self) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=self.codec,
            is_transactional=self.is_transactional,
            producer_id=self.producer,
            producer_epoch=0 if self.producer >= 0 else -1,
            base_sequence=0 if self.producer >= 0 else -1,
            batch_size=1 << 30,
        )
        deltas = self.deltas if self.deltas is not None else range(len(self.records))
        for delta, record in zip(deltas, self.records, strict=True):
            appended = builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
            assert appended is not None
        data = bytearray(builder.build())
        struct.pack_into(">q", data, 0, self.base)
        struct.pack_into(">i", data, 12, self.epoch)
        struct.pack_into(">i", data, 23, self.last - self.base)
        if self.append_time is not None:
            data[22] |= 0x08
            struct.pack_into(">q", data, 35, self.append_time)
        return seal(data)


def seal(batch: bytearray) -> bytes:
    """The batch with the length and the checksum that fit its bytes."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def marker(base: int, producer: int, kind: int, epoch: int = 0) -> bytes:
    """A control batch that ends a transaction, byte by byte as Kafka's EndTransactionMarker writes it."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    record = bytes([0, 0, 0, len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    record = bytes([len(record) * 2]) + record
    header = struct.pack(">qiibIhiqqqhii", base, 0, epoch, 2, 0, 0x30, 0, NOON_MS, NOON_MS, producer, 0, -1, 1)
    return seal(bytearray(header + record))


@dataclass(frozen=True)
class Folder:
    """Reads the files of an archive that is a folder."""

    root: Path

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def read(self, path: str, start: int, end: int | None) -> bytes:
        return (self.root / path).read_bytes()[start:end]


@dataclass(frozen=True)
class Memory:
    """Reads files that this process holds."""

    files: dict[str, bytes]

    def size(self, path: str) -> int:
        return len(self.read(path, 0, None))

    def read(self, path: str, start: int, end: int | None) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][start:end]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A segment and its files, by kind."""

    segment: Segment
    files: dict[str, bytes]

    def by_path(self) -> dict[str, bytes]:
        """Its files, by their paths in an archive."""
        return {LocalTieredStorage().path(self.segment, kind): data for kind, data in self.files.items()}  # type: ignore[arg-type]

    def write(self, root: Path) -> None:
        for path, data in self.by_path().items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def with_log(self, log: bytes) -> Stored:
        """Another log in the place of the copied one, whose metadata stay."""
        return replace(self, files={**self.files, "log": log})


def stored(
    batches: Sequence[bytes],
    *,
    aborted: Sequence[tuple[int, int, int]] = (),
    unfinished: Sequence[int] = (),
    index_every: int = 4096,
    partition: int = 0,
    identity: UUID = SEGMENT_ID,
) -> Stored:
    """A segment of these batches, with the indexes that a broker writes beside it.

    Args:
        aborted: (producer, first offset, offset of the marker).
        unfinished: first offsets of transactions that are open at the end.
        index_every: bytes between two entries of the indexes.
    """
    start = struct.unpack_from(">q", batches[0])[0]
    epochs: list[tuple[int, int]] = []
    offsets, times = bytearray(), bytearray()
    position = since = 0
    newest = (-1, start)
    last = start
    for batch in batches:
        base, epoch = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 12)[0]
        last = base + struct.unpack_from(">i", batch, 23)[0]
        newest = max(newest, (struct.unpack_from(">q", batch, 35)[0], last), key=lambda pair: pair[0])
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, base))
        if since > index_every:
            offsets += struct.pack(">ii", last - start, position)
            if not times or newest[0] > struct.unpack_from(">q", times, len(times) - 12)[0]:
                times += struct.pack(">qi", newest[0], newest[1] - start)
            since = 0
        position, since = position + len(batch), since + len(batch)
    producers = b"".join(
        struct.pack(">qhiqiqiq", i, 0, 0, last, 0, NOON_MS, 0, first) for i, first in enumerate(unfinished)
    )
    producers = struct.pack(">i", len(unfinished)) + producers
    files = {
        "log": b"".join(batches),
        "index": bytes(offsets),
        "timeindex": bytes(times),
        "snapshot": struct.pack(">hI", 1, crc32c(producers)) + producers,
    }
    if aborted:
        files["txnindex"] = b"".join(struct.pack(">hqqqq", 0, *transaction, transaction[2]) for transaction in aborted)
    segment = Segment(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=partition,
        id=identity,
        start=start,
        end=last + 1,
        size=len(files["log"]),
        max_timestamp_ms=newest[0],
        epochs=tuple(epochs),
        copied_ms=0,
        may_have_aborts=bool(aborted),
    )
    return Stored(segment=segment, files=files)


def archive_of(
    root: Path | None, segments: Sequence[Stored], *, compacted: bool = False, split_bytes: int = SPLIT_BYTES
) -> Archive:
    """An archive of one partition with these segments, one after the other, as files of a folder, or in memory."""
    for one in segments if root else ():
        one.write(root)
    held = {path: data for one in segments for path, data in one.by_path().items()}
    return Archive(
        Store(Folder(root) if root else Memory(held)),
        partitions_of(segments),
        compacted=compacted,
        split_bytes=split_bytes,
    )


def partitions_of(segments: Sequence[Stored]) -> dict[str, dict[int, ArchivedPartition]]:
    """One partition with these segments, one after the other."""
    pieces = tuple(Piece(segment=one.segment, start=one.segment.start, end=one.segment.end) for one in segments)
    partition = ArchivedPartition(topic=TOPIC, partition=segments[0].segment.partition, pieces=pieces)
    return {TOPIC: {partition.partition: partition}}
