"""Parses JSON records to the columns of their topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tables.engine.declarations.column_types import FieldType
from tables.engine.declarations.declaration import Topic
from tables.engine.events.json_fields import (
    Convert,
    Misfit,
    conversion,
    python_type,
    repeated_key,
    rest,
    unknown_fields,
)
from tables.engine.events.parsed_records import Parsed, sized, without_gc

_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)
"""What parsing raises for a record that does not fit."""
_COLON, _QUOTE, _SPACES = 0x3A, 0x22, np.frombuffer(b" \t\n\r", np.uint8)


@dataclass(frozen=True)
class JsonParser:
    """Parses JSON objects: exactly typed, no key twice, no unknown field but where the topic allows it."""

    topic: Topic

    def parse(self, raw: pa.Table) -> Parsed:
        """The records of `raw` that are what the schema says, and of the others why they are not."""
        with without_gc():
            parsed, rests, faults = self._parse(raw["value"].combine_chunks())
        rows = [row for row, record in enumerate(parsed) if record is not None]
        if len(rows) < len(parsed):
            parsed = [parsed[row] for row in rows]
        return Parsed(rows, self._columns(parsed), faults, [rests.get(row) for row in rows])

    def _parse(self, values: pa.Array) -> tuple[list[Any], dict[int, str], dict[int, list[str]]]:
        """Of each row its record or None; of some rows the fields that the schema does not name; what is wrong."""
        parsed: list[Any] = []
        texts: list[bytes | None] = []
        rests: dict[int, str] = {}
        faults: dict[int, list[str]] = {}
        for row, value in enumerate(values.to_pylist()):
            record, text = None, None
            unfit = sized(value, self.topic, "a JSON object")
            if unfit is not None:
                faults[row] = [unfit]
            else:
                try:
                    record = self._decoder.decode(value)
                    if not self._is_flat:
                        text = msgspec.json.encode(record)
                    self._convert(record)
                except _FAULTS as error:
                    record, faults[row] = None, [_readable(error)]
            parsed.append(record)
            texts.append(text)
        for row in self._suspects(values, parsed, texts):
            try:
                unknown = self._look(values[row].as_py())
            except _FAULTS as error:
                parsed[row], faults[row] = None, [_readable(error)]
            else:
                if unknown is not None:
                    rests[row] = unknown
        return parsed, rests, faults

    def _convert(self, record: Any) -> None:
        for column, convert in self._conversions:
            cell = getattr(record, column)
            if cell is not msgspec.UNSET:
                try:
                    setattr(record, column, convert(cell))
                except Misfit as misfit:
                    raise Misfit(misfit.reason, f".{column}{misfit.path}") from None

    def _suspects(self, values: pa.Array, parsed: Sequence[Any], texts: Sequence[bytes | None]) -> list[int]:
        """Rows in which a key may stand twice, or may be one that the schema does not name.

        A plain record has as many `":` as names: those of the schema where it is flat, else those of the parsed record
        as it is written again. Another number, a field that is absent from a flat record, white space before a colon
        or an escaped quotation mark make a row worth the slow look; no such key escapes these. Found in one pass over
        the bytes of the whole batch, since nearly all rows are plain.
        """
        names, spaced = _names(values)
        if self._is_flat:
            odd = set(np.flatnonzero(names != len(self.topic.record_types)).tolist())
            for column in self._optional:
                odd.update(row for row, r in enumerate(parsed) if r is not None and getattr(r, column) is msgspec.UNSET)
        else:
            odd = set(np.flatnonzero(names != _names(pa.array(texts, pa.binary()))[0]).tolist())
            escaped = pc.fill_null(pc.match_substring(values, rb"\u0022"), False)
            odd.update(pc.indices_nonzero(escaped).to_pylist())
        odd.update(spaced)
        return sorted(row for row in odd if parsed[row] is not None)

    def _look(self, value: bytes) -> str | None:
        """The fields that the schema does not name, as JSON, where the topic keeps them.

        Raises:
            ValueError: a key stands twice, or is not in the schema of a topic that refuses such keys.
        """
        repeated = repeated_key(value)
        if repeated is not None:
            raise ValueError(f"the key {repeated!r} stands twice")
        if self._is_flat or self.topic.unknown_fields == "ignore":
            return None
        if self.topic.unknown_fields == "keep":
            kept = rest(value, self._record_type)
            return None if kept is None else msgspec.json.encode(kept).decode()
        path = next(unknown_fields(msgspec.json.decode(value), self._record_type), None)
        if path is not None:
            raise ValueError(f"Object contains unknown field `{path.removeprefix('.')}`")
        return None

    def _columns(self, records: Sequence[Any]) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        for column, kind in self.topic.record_types.items():
            cells = [getattr(record, column) for record in records]
            if kind.nullable:
                cells = [None if cell is msgspec.UNSET else cell for cell in cells]
            columns[column] = pa.array(cells, kind.arrow)
        return columns

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(_struct(self.topic))

    @cached_property
    def _optional(self) -> list[str]:
        return [column for column, kind in self.topic.record_types.items() if kind.nullable]

    @cached_property
    def _record_type(self) -> FieldType:
        return FieldType(name="struct", fields=tuple(self.topic.record_types.items()))

    @cached_property
    def _is_flat(self) -> bool:
        """Whether a record that fits shows each field of the schema once, and nothing else."""
        return self.topic.unknown_fields == "refuse" and all(kind.is_flat for kind in self.topic.record_types.values())

    @cached_property
    def _conversions(self) -> list[tuple[str, Convert]]:
        found = {column: conversion(kind) for column, kind in self.topic.record_types.items()}
        return [(column, convert) for column, convert in found.items() if convert is not None]


def _names(values: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[int]]:
    """How often each value has `":`, and the rows in which white space stands before a colon."""
    _, ends, data = values.buffers()
    bounds = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    colons = np.flatnonzero(text[bounds[0] : bounds[-1]] == _COLON) + bounds[0]
    before, rows = text[colons - 1], np.searchsorted(bounds[1:], colons, side="right")
    return np.bincount(rows[before == _QUOTE], minlength=len(values)), rows[np.isin(before, _SPACES)].tolist()


def _struct(topic: Topic) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for column, kind in topic.record_types.items():
        python = python_type(kind)
        fields.append((column, python, msgspec.UNSET) if kind.nullable else (column, python))
    refuse = topic.unknown_fields == "refuse"
    return msgspec.defstruct(topic.name or "Record", fields, kw_only=True, forbid_unknown_fields=refuse, gc=False)


def _readable(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).replace(" - at `$.", " at `").replace("$.", "")
