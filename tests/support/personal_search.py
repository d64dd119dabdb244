"""Looks for texts in all bytes below a folder: as they are, in other spellings, and within compressed blocks."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def found_in(folders: Iterable[Path], texts: Sequence[str]) -> dict[str, list[str]]:
    """Text -> the files that have it."""
    spellings = {text: list(_spelled(text)) for text in texts}
    found: dict[str, list[str]] = {}
    for file in (file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()):
        try:
            data = file.read_bytes()
        except FileNotFoundError:  # a server removed it meanwhile
            continue
        if file.suffix in (".index", ".timeindex"):
            data = data.rstrip(b"\0")  # they have megabytes of room
        whole = b"\n".join([data, *_opened(data, file)])
        for text, ways in spellings.items():
            if any(way in whole for way in ways):
                found.setdefault(text, []).append(str(file))
    return found


def _spelled(text: str) -> Iterator[bytes]:
    plain = text.encode()
    yield plain
    yield plain.hex().encode()
    yield text.encode("utf-16-le")
    yield text.encode("utf-16-be")
    for start in range(3):  # within a longer text, base64 has three spellings; its ends mix with what is around
        encoded = base64.b64encode(b"\0" * start + plain)
        yield encoded[(0, 2, 3)[start] : len(encoded) - 4]
        yield base64.urlsafe_b64encode(b"\0" * start + plain)[(0, 2, 3)[start] : len(encoded) - 4]


def _opened(data: bytes, file: Path) -> Iterator[bytes]:
    """What a file holds within compressed blocks: columns of Parquet, batches of Kafka, whole files."""
    if data[:4] == b"PAR1":
        yield json.dumps(pq.read_table(pa.BufferReader(data)).to_pylist(), default=_text, ensure_ascii=False).encode()
    if file.suffix == ".log" and len(data) > 17 and data[16] == 2:
        yield from _records(data)
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        yield pa.input_stream(pa.BufferReader(data), compression="zstd").read()
    if data[:4] == b"\x04\x22\x4d\x18":
        yield pa.input_stream(pa.BufferReader(data), compression="lz4").read()
    with suppress(OSError, ValueError, pa.ArrowException, IndexError):  # a block of snappy has no sign of its own
        yield pa.decompress(data, decompressed_size=_snappy_size(data), codec="snappy").to_pybytes()
    with suppress(zlib.error):
        yield zlib.decompress(data)


def _snappy_size(data: bytes) -> int:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    if size > 1 << 26:
        raise ValueError("no block")
    return size


def _records(data: bytes) -> Iterator[bytes]:
    from kafka.record import MemoryRecords

    batches = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        for record in batch or ():
            yield record.key or b""
            yield record.value or b""
            yield repr(record.headers).encode()


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
