"""Archived records as Arrow, in the columns of the Spark Kafka source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from twofold_archive.format import record_parser
from twofold_archive.format.compiled import Bytes
from twofold_archive.format.record_columns import HEADERS, SCHEMA, schema

MAX_ROWS = 1 << 16  # of one Arrow batch


class BadRecords(Exception):
    """The first fault, and the batch in which it is."""

    def __init__(self, batch: int, reason: str) -> None:
        super().__init__(reason)
        self.batch, self.reason = batch, reason


def arrow(
    data: Bytes,
    batches: npt.NDArray[np.int64],
    *,
    topic: str,
    partition: int,
    offsets: tuple[int, int],
    contiguous: bool,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yields the records with offsets `[from, to)` of decompressed batches, at most MAX_ROWS per Arrow batch.

    Args:
        batches: as `record_parser.parse` takes them.

    Raises:
        BadRecords: a batch is damaged; the rows yielded before it are valid.
    """
    state = np.array(record_parser.BEGIN, np.int64)
    columns_schema = schema(columns)
    most = min(int(batches[:, record_parser.COUNT].sum()), MAX_ROWS)
    while state[0] < len(batches):
        room = _Room(most, len(data), columns)
        rows, headers, code = record_parser.parse(data, batches, state, *offsets, contiguous, *room.arrays)
        if code != record_parser.OK:
            raise BadRecords(int(state[0]), record_parser.REASONS[code])
        if rows:
            made = [room.column(name, rows, headers, topic, partition) for name in columns]
            yield pa.RecordBatch.from_arrays(made, schema=columns_schema)


class _Strings:
    """Buffers for byte strings; empty if the column is not requested."""

    def __init__(self, count: int, size: int, wanted: bool) -> None:
        self.ends = np.empty(count + 1 if wanted else 1, np.int32)
        self.ends[0] = 0
        self.there = np.empty(count if wanted else 0, np.uint8)
        # Pages that nothing is written to cost nothing.
        self.data = np.empty(size if wanted else 0, np.uint8)

    def column(self, rows: int) -> pa.Array:
        there = self.there[:rows]
        absent = rows - int(np.count_nonzero(there))
        valid = pa.py_buffer(np.packbits(there, bitorder="little")) if absent else None
        return pa.Array.from_buffers(pa.binary(), rows, [valid, *self.plain(rows)], null_count=absent)

    def plain(self, rows: int) -> list[pa.Buffer]:
        return [pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[: self.ends[rows]])]


class _Room:
    """The buffers that `record_parser.parse` fills, for one Arrow batch."""

    def __init__(self, rows: int, size: int, columns: Sequence[str]) -> None:
        with_headers = HEADERS in columns
        self.offsets, self.timestamps = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self.kinds = np.empty(rows, np.int32)
        self.keys = _Strings(rows, size, "key" in columns)
        self.values = _Strings(rows, size, "value" in columns)
        self.header_ends = np.zeros(rows + 1 if with_headers else 1, np.int32)
        self.names = _Strings(record_parser.MAX_HEADERS + 1, size, with_headers)
        self.contents = _Strings(record_parser.MAX_HEADERS + 1, size, with_headers)

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        keys, values, names, contents = self.keys, self.values, self.names, self.contents
        arrays: list[npt.NDArray[Any]] = [self.offsets, self.timestamps, self.kinds]
        arrays += [keys.ends, keys.there, keys.data]
        arrays += [values.ends, values.there, values.data, self.header_ends, names.ends, names.data]
        return [*arrays, contents.ends, contents.there, contents.data]

    def column(self, name: str, rows: int, headers: int, topic: str, partition: int) -> pa.Array:
        match name:
            case "key":
                return self.keys.column(rows)
            case "value":
                return self.values.column(rows)
            case "topic":
                return pa.repeat(pa.scalar(topic), rows)
            case "partition":
                return pa.repeat(pa.scalar(partition, pa.int32()), rows)
            case "offset":
                return _numbers(pa.int64(), self.offsets[:rows])
            case "timestamp":
                return _numbers(SCHEMA.field(name).type, self.timestamps[:rows] * 1000)
            case "timestampType":
                return _numbers(pa.int32(), self.kinds[:rows])
            case _:
                return self.header(rows, headers)

    def header(self, rows: int, headers: int) -> pa.Array:
        """Builds the column of headers: a list for each record, null if it has no header."""
        ends = self.header_ends[: rows + 1]
        empty = np.diff(ends) == 0
        kind = SCHEMA.field(HEADERS).type
        names = _text(pa.Array.from_buffers(pa.binary(), headers, [None, *self.names.plain(headers)]))
        pairs = pa.StructArray.from_arrays([names, self.contents.column(headers)], fields=list(kind.value_type))
        valid = pa.py_buffer(np.packbits(~empty, bitorder="little")) if empty.any() else None
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(ends)], children=[pairs])


def _numbers(kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    """Builds an Arrow array of numbers without a copy; `pa.array` would import pandas to check their type."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def _text(names: pa.Array) -> pa.Array:
    """Converts header names to text and replaces invalid UTF-8, as the broker's own client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
