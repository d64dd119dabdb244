"""Parses Avro records to the columns of their topic, each by the schema that it was written by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from infra.compiled import Bytes, Numbers
from infra.encodings.avro.avro_columns import BASE, FROM_DOUBLE, FROM_FLOAT, read_all
from infra.encodings.avro.avro_faults import require_sound
from infra.encodings.avro.avro_program import Program, Slot, compiled, exact_decimal
from infra.encodings.avro.avro_resolution import resolved
from infra.encodings.avro.avro_schema import EXACT, AvroSchema, Node, parse_avro, unnamed_fields
from infra.encodings.byte_loops import gather
from infra.encodings.column_types import FieldType
from infra.encodings.parsed_records import Parsed
from infra.encodings.record_format import Misfit, RecordFormat
from infra.encodings.schema_files import Schema
from infra.encodings.schema_framing import Framed
from infra.encodings.schema_parser import Group, SchemaParser

_JSON = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class _Reading:
    """How records of one schema are read.

    Attributes:
        keeps_more: the schema has fields that the topic keeps without naming them.
    """

    writer: AvroSchema
    program: Program
    keeps_more: bool


class AvroParser(SchemaParser[_Reading]):
    """Parses Avro records: the writer's schema resolved to the newest of the topic's files, by Avro's rules."""

    expected = "an Avro record"

    def reading(self, schema: Schema, written: Framed) -> _Reading:
        writer = parse_avro(schema)
        step = resolved(writer.root, self._reader.root)
        unnamed = next(unnamed_fields(writer.root, self.record_type), None)
        self.refuse_unknown(unnamed, written)
        keeps = self.format.unknown_fields == "keep"
        return _Reading(writer, compiled(step, self.record_type), unnamed is not None and keeps)

    def parse_group(self, values: pa.Array, group: Group, reading: _Reading) -> Parsed:
        _, _, buffer = values.buffers()
        data = np.frombuffer(buffer, np.uint8)
        sound, columns = _columns(reading.program, data, group.starts, group.ends)
        faults: dict[int, list[str]] = {}
        for n in np.flatnonzero(sound == 0).tolist():
            row, start = int(group.rows[n]), int(group.starts[n])
            faults[row] = [_reason(reading.writer, data[start : group.ends[n]].tobytes())]
        rows = group.rows[sound == 1].tolist()
        repeated = _in_order(columns, self.format)
        if repeated:
            whole = np.array([row not in repeated for row in range(len(rows))])
            faults.update((rows[n], [why]) for n, why in repeated.items())
            sound[np.flatnonzero(sound)[~whole]] = 0
            rows = group.rows[sound == 1].tolist()
            columns = {name: column.filter(pa.array(whole)) for name, column in columns.items()}
        rests: list[str | None] = [None] * len(rows)
        if reading.keeps_more:
            places = zip(group.starts[sound == 1].tolist(), group.ends[sound == 1].tolist(), strict=True)
            rests = [self._rest(reading.writer, data[start:end].tobytes()) for start, end in places]
        return Parsed(rows, columns, faults, rests)

    def _rest(self, writer: AvroSchema, record: bytes) -> str | None:
        import fastavro

        read = fastavro.schemaless_reader(BytesIO(record), writer.parsed, None)
        more = _unnamed(read, writer.root, self.record_type)
        return None if more is None else _JSON.encode(more).decode()

    @cached_property
    def _reader(self) -> AvroSchema:
        return parse_avro(self.files.newest)


def _in_order(columns: dict[str, pa.Array], format: RecordFormat) -> dict[int, str]:
    """Put the entries of maps into the order of their keys; row -> the key that it has twice."""
    found: dict[int, str] = {}
    for name, kind in format.types.items():
        if kind.name == "map":
            cells = columns[name].to_pylist()
            for row, cell in enumerate(cells):
                keys = [key for key, _ in cell or ()]
                if len(set(keys)) < len(keys):
                    found[row] = f"the key {next(k for k in keys if keys.count(k) > 1)!r} is repeated at `{name}`"
            ordered = [None if cell is None else sorted(cell, key=lambda entry: entry[0]) for cell in cells]
            columns[name] = pa.array(ordered, kind.arrow)
    return found


def _reason(writer: AvroSchema, record: bytes) -> str:
    try:
        require_sound(writer.root, record, 0)
    except Misfit as misfit:
        return str(misfit) if misfit.path else misfit.reason
    return "a value that the newest schema cannot hold: a branch of a union, a symbol, or a number that a double rounds"


def _columns(program: Program, data: Bytes, starts: Numbers, ends: Numbers) -> tuple[Bytes, dict[str, pa.Array]]:
    """Which records are sound, and the columns of those."""
    slots, sound = program.slots.copy(), np.zeros(len(starts), np.uint8)
    counts, nothing = np.zeros(len(slots), np.int64), np.zeros(0, np.int64)
    tables = program.steps, program.kids, slots, program.slot_kids
    read_all(data, starts, ends, sound, *tables, counts, nothing, nothing, sound, False)
    slots[:, BASE] = np.cumsum(counts) - counts
    ones, others = np.zeros(counts.sum(), np.int64), np.zeros(counts.sum(), np.int64)
    there = np.zeros(counts.sum(), np.uint8)
    read_all(data, starts, ends, sound, *tables, np.zeros(len(slots), np.int64), ones, others, there, True)
    values = _Values(data, slots[:, BASE], counts, ones, others, there)
    return sound, {name: values.array(slot) for name, slot in program.root.parts.items()}


@dataclass(frozen=True)
class _Values:
    """What was read of all slots."""

    data: Bytes
    bases: Numbers
    counts: Numbers
    ones: Numbers
    others: Numbers
    there: Bytes

    def array(self, slot: Slot) -> pa.Array:
        """The values of a slot as Arrow has them."""
        kind, arrow = slot.kind, slot.kind.arrow
        here = slice(self.bases[slot.number], self.bases[slot.number] + self.counts[slot.number])
        size, one, other, there = here.stop - here.start, self.ones[here], self.others[here], self.there[here]
        if slot.default is not None:
            return pa.array([slot.default], arrow).take(pa.array(np.zeros(size, np.int64)))
        valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        if kind.name == "struct":
            parts = [self.array(part) for part in slot.parts.values()]
            return pa.Array.from_buffers(arrow, size, [valid], children=parts)
        if kind.element is not None:
            parts = [self.array(part) for part in slot.parts.values()]
            if kind.name == "map":
                entries = pa.StructArray.from_arrays(parts, fields=[arrow.key_field, arrow.item_field])
                return pa.Array.from_buffers(arrow, size, [valid, _ends(one)], children=[entries])
            return pa.Array.from_buffers(arrow, size, [valid, _ends(one)], children=parts)
        if slot.symbols:
            numbers = pa.array(np.where(there == 1, one, 0), mask=there == 0)
            return pa.DictionaryArray.from_arrays(numbers, list(slot.symbols)).cast(arrow)
        if kind.name in ("string", "binary"):
            text = np.empty(other.sum(), np.uint8)
            gather(self.data, one, other, text)
            return pa.Array.from_buffers(arrow, size, [valid, _ends(other), pa.py_buffer(text)])
        return pa.Array.from_buffers(arrow, size, [valid, pa.py_buffer(_bits(kind, one, other))])


def _bits(kind: FieldType, one: Numbers, other: Numbers) -> np.ndarray[Any, Any]:
    """The numbers of a column as Arrow keeps them."""
    if kind.name == "decimal":
        return np.column_stack([one, other])
    if kind.name == "boolean":
        return np.packbits(one.astype(np.uint8), bitorder="little")
    if kind.name == "double":
        found = one.astype(np.float64)
        found[other == FROM_DOUBLE] = one.view(np.float64)[other == FROM_DOUBLE]
        floats = other == FROM_FLOAT
        found[floats] = one[floats].astype(np.uint32).view(np.float32)
        return found
    return one.astype(np.int32) if kind.name in ("int", "date") else one


def _ends(sizes: Numbers) -> pa.Buffer:
    return pa.py_buffer(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))


def _unnamed(value: Any, node: Node, kind: FieldType) -> Any:
    """The fields of a value that a column's type does not name, each under the names that lead to it."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return _unnamed(value, others[0], kind) if value is not None and len(others) == 1 else None
    if node.kind == "record" and kind.name == "struct":
        known, found = dict(kind.fields), {}
        for name, part in node.fields.items():
            inner = _unnamed(value[name], part, known[name]) if name in known else _plain(value[name], part)
            if name not in known or inner is not None:
                found[name] = inner
        return found or None
    if node.kind in ("array", "map") and kind.element is not None:
        items: Sequence[tuple[Any, Any]] = sorted(value.items()) if node.kind == "map" else list(enumerate(value))
        parts = {str(place): _unnamed(item, node.parts[0], kind.element) for place, item in items}
        return {place: part for place, part in parts.items() if part is not None} or None
    return None


def _plain(value: Any, node: Node) -> Any:
    """A value as JSON has it, its decimals exact."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return _plain(value, others[0]) if value is not None and len(others) == 1 else value
    if node.kind == "record":
        return {name: _plain(value[name], part) for name, part in node.fields.items()}
    if node.kind == "array":
        return [_plain(item, node.parts[0]) for item in value]
    if node.kind == "map":
        return {name: _plain(item, node.parts[0]) for name, item in sorted(value.items())}
    return exact_decimal(node, value) if node.logical == f"{EXACT}decimal" else value
