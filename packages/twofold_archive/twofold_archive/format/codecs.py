"""Decompresses into a buffer of fixed size: output that does not fit is an error."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import cramjam
from zstandard._cffi import ffi, lib

from twofold_archive.format.compiled import Bytes

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # the magic, then two versions of four bytes
_DOES_NOT_FIT = "failed to write whole buffer"


class DoesNotFit(Exception):
    """The output is larger than the buffer."""


class Undecodable(Exception):
    """The input is not what its codec writes."""


def decompress(codec: int, data: memoryview, room: Bytes) -> int:
    """Decompresses a batch's records into the front of `room` and returns the number of bytes written.

    Args:
        codec: as in the attributes of a record batch: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.

    Raises:
        DoesNotFit: the records are larger than `room`, whose content is undefined then.
        Undecodable: the data is cut off, damaged, or of no known codec.
    """
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise Undecodable(f"no codec has the number {codec}")
    try:
        return decoder(data, room)
    except cramjam.DecompressionError as error:
        if _DOES_NOT_FIT in str(error):
            raise DoesNotFit from error
        raise Undecodable(str(error)) from error


def _copy(data: memoryview, room: Bytes) -> int:
    if len(data) > len(room):
        raise DoesNotFit
    room[: len(data)] = data
    return len(data)


def _library(module: Any) -> Callable[[memoryview, Bytes], int]:
    def into(data: memoryview, room: Bytes) -> int:
        return int(module.decompress_into(data, room))

    return into


class _Zstd(threading.local):
    """Decompresses whole batches with libzstd; each thread reuses one context for all batches.

    The package's public functions do not suffice: the one that writes into a given buffer does not report a truncated
    frame, and the one that reports it allocates as much memory as a frame asks for.
    """

    def __init__(self) -> None:
        self._context = ffi.gc(lib.ZSTD_createDCtx(), lib.ZSTD_freeDCtx)
        if not self._context:
            raise MemoryError

    def __call__(self, data: memoryview, room: Bytes) -> int:
        size = lib.ZSTD_decompressDCtx(
            self._context, ffi.from_buffer(room), len(room), ffi.from_buffer(data), len(data)
        )
        if lib.ZSTD_isError(size):
            if lib.ZSTD_getErrorCode(size) == lib.ZSTD_error_dstSize_tooSmall:
                raise DoesNotFit
            raise Undecodable(f"zstd: {ffi.string(lib.ZSTD_getErrorName(size)).decode()}")
        return int(size)


def _snappy(data: memoryview, room: Bytes) -> int:
    """Decompresses blocks in the framing of the Java library snappy-java ("xerial"), or one raw block."""
    if bytes(data[:8]) != _XERIAL:
        return _snappy_block(data, room)
    at, written = _XERIAL_HEADER, 0
    while at < len(data):
        if bytes(data[at : at + 8]) == _XERIAL:  # streams that were put one after the other
            at += _XERIAL_HEADER
            continue
        if at + 4 > len(data):
            raise Undecodable("snappy: the length of a block is cut off")
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise Undecodable(f"snappy: a block of {length} bytes where {len(data) - at} are left")
        written += _snappy_block(data[at : at + length], room[written:])
        at += length
    return written


def _snappy_block(data: memoryview, room: Bytes) -> int:
    if not len(data):
        raise Undecodable("snappy: an empty block")
    if cramjam.snappy.decompress_raw_len(data) > len(room):
        raise DoesNotFit
    return int(cramjam.snappy.decompress_raw_into(data, room))  # type: ignore[arg-type]


_DECODERS: Mapping[int, Callable[[memoryview, Bytes], int]] = {
    0: _copy,
    1: _library(cramjam.gzip),
    2: _snappy,
    3: _library(cramjam.lz4),
    4: _Zstd(),
}
