"""Parses JSON records to the columns of their topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.json.json_fields import (
    Convert,
    repeated_key,
    rest,
    struct_conversion,
    struct_type,
    unknown_fields,
)
from twofold.infra.encodings.json.object_columns import object_columns
from twofold.infra.encodings.parsed_records import Parsed, sized, without_gc
from twofold.infra.encodings.record_format import RecordFormat

if TYPE_CHECKING:
    from twofold_archive.format.compiled import Bytes, Numbers

_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)
"""The errors of parsing for a record that does not fit."""


@dataclass(frozen=True)
class JsonParser:
    """Parses JSON objects strictly: exact types, no repeated key, no unknown field unless the topic allows it."""

    format: RecordFormat

    def parse(self, raw: pa.Table) -> Parsed:
        """Parses records; returns those that fit the schema, and the faults of the others."""
        with without_gc():
            parsed, rests, faults = self._parse(raw["value"].combine_chunks())
            rows = [row for row, record in enumerate(parsed) if record is not None]
            if len(rows) < len(parsed):
                parsed = [parsed[row] for row in rows]
            columns = object_columns(parsed, self._record_type.fields)
            del parsed  # before the search for cycles goes on, which would look at all of them
        return Parsed(rows, columns, faults, [rests.get(row) for row in rows])

    def _parse(self, values: pa.Array) -> tuple[list[Any], dict[int, str], dict[int, list[str]]]:
        """Parses each row; returns the records (None if refused), some rows' unknown fields, and faults by row."""
        parsed: list[Any] = []
        texts, ends = bytearray(), [0]
        rests: dict[int, str] = {}
        faults: dict[int, list[str]] = {}
        decode, convert, encode = self._decoder.decode, self._conversion, self._encoder.encode_into
        for row, value in enumerate(values.to_pylist()):
            record = None
            unfit = sized(value, self.format.max_bytes, "a JSON object")
            if unfit is not None:
                faults[row] = [unfit]
            else:
                try:
                    record = decode(value)
                    if not self._is_flat:
                        encode(record, texts, -1)
                    if convert is not None:
                        convert(record)
                except _FAULTS as error:
                    record, faults[row] = None, [_readable(error)]
            parsed.append(record)
            ends.append(len(texts))
        for row in self._suspects(values, parsed, np.frombuffer(texts, np.uint8), np.array(ends, np.int64)):
            try:
                unknown = self._look(values[row].as_py())
            except _FAULTS as error:
                parsed[row], faults[row] = None, [_readable(error)]
            else:
                if unknown is not None:
                    rests[row] = unknown
        return parsed, rests, faults

    def _suspects(self, values: pa.Array, parsed: Sequence[Any], texts: Bytes, ends: Numbers) -> list[int]:
        """Returns the rows that may have a repeated key or one that the schema does not name.

        A plain record has as many `":` as names: those of the schema if it is flat, else those of the parsed record,
        encoded again. Another count, an absent field of a flat record, white space before a colon, and an escaped
        quotation mark or colon make a row a suspect; every such key is found by these. One pass over the bytes of the
        whole batch suffices, since nearly all rows are plain.
        """
        from twofold.infra.encodings.json.json_names import count_names

        names, odd_names = count_names(*_bytes_of(values))
        if self._is_flat:
            odd = set(np.flatnonzero(names != len(self.format.types)).tolist())
            for column in self._optional:
                odd.update(row for row, r in enumerate(parsed) if r is not None and getattr(r, column) is msgspec.UNSET)
        else:
            odd = set(np.flatnonzero(names != count_names(texts, ends)[0]).tolist())
        odd.update(np.flatnonzero(odd_names).tolist())
        return sorted(row for row in odd if parsed[row] is not None)

    def _look(self, value: bytes) -> str | None:
        """Checks one record for repeated and unknown keys; returns the unknown fields as JSON, if the topic keeps them.

        Raises:
            ValueError: a repeated key, or one that is not in the schema of a topic that refuses such keys.
        """
        repeated = repeated_key(value)
        if repeated is not None:
            raise ValueError(f"the key {repeated!r} is repeated")
        if self._is_flat or self.format.unknown_fields == "ignore":
            return None
        if self.format.unknown_fields == "keep":
            kept = rest(value, self._record_type)
            return None if kept is None else msgspec.json.encode(kept).decode()
        path = next(unknown_fields(msgspec.json.decode(value), self._record_type), None)
        if path is not None:
            raise ValueError(f"Object contains unknown field `{path.removeprefix('.')}`")
        return None

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        refuses = self.format.unknown_fields == "refuse"
        name = self.format.topic.rpartition(".")[2] or "Record"
        return msgspec.json.Decoder(struct_type(self._record_type.fields, name, forbids=refuses))

    @cached_property
    def _encoder(self) -> msgspec.json.Encoder:
        return msgspec.json.Encoder()

    @cached_property
    def _optional(self) -> list[str]:
        return [f"f{n}" for n, kind in enumerate(self.format.types.values()) if kind.nullable]

    @cached_property
    def _record_type(self) -> FieldType:
        return self.format.record_type

    @cached_property
    def _is_flat(self) -> bool:
        """Whether a valid record has each field name of the schema once, and no other."""
        return self.format.unknown_fields == "refuse" and all(kind.is_flat for kind in self.format.types.values())

    @cached_property
    def _conversion(self) -> Convert | None:
        return struct_conversion(self._record_type.fields, inner=False)


def _bytes_of(values: pa.Array) -> tuple[Bytes, Numbers]:
    """Returns the buffer of all values, with the start of each value and the end of the last."""
    _, ends, data = values.buffers()
    bounds = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), bounds.astype(np.int64)


def _readable(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).replace(" - at `$.", " at `").replace("$.", "")
