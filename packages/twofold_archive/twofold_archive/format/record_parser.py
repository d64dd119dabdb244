"""Records of decompressed batches as columns: one compiled loop over plain buffers, no object per record.

A record (Kafka's batch format 2) consists of its length, a byte of attributes, its timestamp and offset as differences
from the batch's, then key, value and headers with their lengths. Numbers are zigzag varints; a length of -1 is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils
from numba.extending import intrinsic

from twofold_archive.format.compiled import Bytes, Numbers, compiled

Ends = npt.NDArray[np.int32]

OK, LENGTH, VARINT, FIELD, CONTENT, OFFSET, TRAILING, HEADERS, TIMESTAMP = range(9)
REASONS = {
    LENGTH: "the length of a record goes beyond the batch",
    VARINT: "a number in a record does not end",
    FIELD: "a key, value or header goes beyond its record",
    CONTENT: "the length of a record is not that of its content",
    OFFSET: "the offset of a record is not within the batch, or not after the one before",
    TRAILING: "its records do not fill it",
    HEADERS: "a record has more headers than are read",
    TIMESTAMP: "the timestamp of a record is beyond what a column can hold",
}
MAX_HEADERS = 1 << 20
NOT_APPENDED = np.iinfo(np.int64).min  # in place of the append time if records keep their creation time
MAX_TIMESTAMP_MS = (2**63 - 1) // 1000  # columns hold microseconds
LEAST_BYTES = 7  # of a record: seven numbers of a byte each

# Columns of the table of batches that `parse` takes: the position of the records, then the fields of the header.
START, END, BASE, BASE_TIMESTAMP, APPENDED, COUNT, LAST_DELTA = range(7)
WIDTH = LAST_DELTA + 1
BEGIN = (0, -1, 0, -1)  # the state before the first record


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Decodes a zigzag varint; returns the number and the position after it, -1 if it does not end before `end`."""
    if at >= end:
        return 0, -1
    byte = np.int64(data[at])
    if byte < 0x80:
        return int((byte >> 1) ^ -(byte & 1)), at + 1
    value = np.uint64(byte & 0x7F)
    shift = np.uint64(7)
    at += 1
    while at < end and shift <= 63:
        byte = np.int64(data[at])
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            half = np.int64(value >> np.uint64(1))
            return int(half ^ -np.int64(value & np.uint64(1))), at
        shift += np.uint64(7)
    return 0, -1


def _memcpy(typing: Any, into: Any, used: Any, data: Any, at: Any, length: Any) -> Any:
    """Copies bytes with libc's memcpy: a compiled loop over each string would make parsing ten times slower."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, used, data, at, length = arguments
        kinds = signature.args
        target = builder.gep(context.make_array(kinds[0])(context, builder, into).data, [used])
        source = builder.gep(context.make_array(kinds[2])(context, builder, data).data, [at])
        cgutils.raw_memcpy(builder, target, source, length, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return numba.void(into, numba.int64, data, numba.int64, numba.int64), generate


_move = cast("Callable[[Bytes, int, Bytes, int, int], None]", intrinsic(_memcpy))


@compiled
def copy_behind(data: Bytes, at: int, length: int, into: Bytes, used: int) -> int:
    """Appends bytes to a buffer, none if the length is -1; returns the number of bytes in use afterwards."""
    if length <= 0:
        return used
    _move(into, used, data, at, length)
    return used + length


@compiled
def parse(
    data: Bytes,
    batches: npt.NDArray[np.int64],
    state: Numbers,
    first: int,
    until: int,
    contiguous: bool,
    offsets: Numbers,
    timestamps: Numbers,
    kinds: Ends,
    key_ends: Ends,
    key_there: Bytes,
    keys: Bytes,
    value_ends: Ends,
    value_there: Bytes,
    values: Bytes,
    header_ends: Ends,
    name_ends: Ends,
    names: Bytes,
    content_ends: Ends,
    content_there: Bytes,
    contents: Bytes,
) -> tuple[int, int, int]:
    """Parses records from `state` on until a column buffer is full or the batches end.

    Every byte of every record is checked, also in columns that are not requested: those have no buffer and are not
    written. Columns of end positions begin with a leading 0.

    Args:
        data: decompressed records; `batches` has their positions by batch, with the fields of its header.
        state: batch, byte, record and offset of the record before, within the batch; BEGIN at first.
        first: offsets before it are parsed and not delivered, as are those from `until` on.
        contiguous: offsets of a batch follow each other without a gap.

    Returns:
        The number of rows, the number of headers, and OK or the fault in the batch `state[0]`.
    """
    rows = headers = used_keys = used_values = used_names = used_contents = 0
    wants_keys, wants_values, wants_headers = len(key_ends) > 1, len(value_ends) > 1, len(header_ends) > 1
    batch, at, record, previous = state[0], state[1], state[2], state[3]
    while batch < len(batches):
        end = batches[batch, END]
        if at < 0:
            at, record, previous = batches[batch, START], 0, -1
        while record < batches[batch, COUNT]:
            began = at
            state[0], state[1], state[2], state[3] = batch, began, record, previous
            if rows == len(offsets):
                return rows, headers, OK
            length, at = _varint(data, at, end)
            if at < 0:
                return rows, headers, VARINT
            if length < LEAST_BYTES - 1 or length > end - at:
                return rows, headers, LENGTH
            stop = at + length
            time_delta, at = _varint(data, at + 1, stop)
            if at < 0:
                return rows, headers, VARINT
            delta, at = _varint(data, at, stop)
            if at < 0:
                return rows, headers, VARINT
            if delta <= previous or delta > batches[batch, LAST_DELTA] or (contiguous and delta != previous + 1):
                return rows, headers, OFFSET
            key_length, key_at = _varint(data, at, stop)
            if key_at < 0:
                return rows, headers, VARINT
            if key_length < -1 or key_length > stop - key_at:
                return rows, headers, FIELD
            value_length, value_at = _varint(data, key_at + max(key_length, 0), stop)
            if value_at < 0:
                return rows, headers, VARINT
            if value_length < -1 or value_length > stop - value_at:
                return rows, headers, FIELD
            count, at = _varint(data, value_at + max(value_length, 0), stop)
            if at < 0:
                return rows, headers, VARINT
            if count < 0 or count > (stop - at) // 2:
                return rows, headers, FIELD
            if count > MAX_HEADERS:
                return rows, headers, HEADERS
            offset = batches[batch, BASE] + delta
            delivered = first <= offset < until
            if delivered and wants_headers and headers + count >= len(name_ends):
                return rows, headers, OK
            for header in range(headers, headers + count):
                length, at = _varint(data, at, stop)
                if at < 0:
                    return rows, headers, VARINT
                if length < 0 or length > stop - at:
                    return rows, headers, FIELD
                if delivered and wants_headers:
                    used_names = copy_behind(data, at, length, names, used_names)
                    name_ends[header + 1] = used_names
                length, at = _varint(data, at + length, stop)
                if at < 0:
                    return rows, headers, VARINT
                if length < -1 or length > stop - at:
                    return rows, headers, FIELD
                if delivered and wants_headers:
                    used_contents = copy_behind(data, at, length, contents, used_contents)
                    content_ends[header + 1] = used_contents
                    content_there[header] = length >= 0
                at += max(length, 0)
            if at != stop:
                return rows, headers, CONTENT
            if delivered:
                offsets[rows] = offset
                appended = batches[batch, APPENDED]
                kinds[rows] = appended != NOT_APPENDED
                timestamp = appended if kinds[rows] else batches[batch, BASE_TIMESTAMP] + time_delta
                if timestamp < -MAX_TIMESTAMP_MS or timestamp > MAX_TIMESTAMP_MS:
                    return rows, headers, TIMESTAMP
                timestamps[rows] = timestamp
                if wants_keys:
                    used_keys = copy_behind(data, key_at, key_length, keys, used_keys)
                    key_ends[rows + 1] = used_keys
                    key_there[rows] = key_length >= 0
                if wants_values:
                    used_values = copy_behind(data, value_at, value_length, values, used_values)
                    value_ends[rows + 1] = used_values
                    value_there[rows] = value_length >= 0
                rows += 1
                if wants_headers:
                    headers += count
                    header_ends[rows] = headers
            previous = delta
            record += 1
        state[0], state[1] = batch, at
        if at != end:
            return rows, headers, TRAILING
        batch, at = batch + 1, -1
        state[0], state[1] = batch, at
    return rows, headers, OK
