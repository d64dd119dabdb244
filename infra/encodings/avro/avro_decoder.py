"""Parses Avro records to the columns of their topic, each by the schema that it was written by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import numpy as np
import pyarrow as pa

from twofold.infra.encodings.avro.avro_columns import AvroColumns, exact_decimal
from twofold.infra.encodings.avro.avro_faults import require_sound
from twofold.infra.encodings.avro.avro_resolution import Step, resolved
from twofold.infra.encodings.avro.avro_schema import BOUNDS, AvroSchema, Node, parse_avro, unnamed_fields
from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.record_format import Misfit
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.encodings.schema_framing import Framed
from twofold.infra.encodings.schema_parser import SchemaParser
from twofold.infra.instants import EPOCH

_JSON = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class _Reading:
    """How records of one writer's schema are read.

    Attributes:
        step: the writer's schema resolved to the reader's.
        keeps_more: the schema has fields that the topic keeps without naming them.
    """

    writer: AvroSchema
    step: Step
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
        return _Reading(writer, step, unnamed is not None and keeps)

    def require_sound(self, record: bytes, reading: _Reading) -> None:
        require_sound(reading.writer.root, record, 0)

    def read(self, record: bytes, reading: _Reading) -> Any:
        """Reads a record with fastavro, and verifies it.

        fastavro silently accepts much: bytes after the record, a symbol of the number -1, byte 2 as true. A record is
        therefore accepted if fastavro writes the same bytes again. One value can have several encodings, so if the
        bytes differ, every byte is checked against the schema.
        """
        parsed, value, again = reading.writer.parsed, None, None
        with suppress(Exception):  # it raises many kinds; the strict reader says what is wrong
            value = fastavro.schemaless_reader(BytesIO(record), parsed, None)
            fastavro.schemaless_writer(out := BytesIO(), parsed, value)
            again = out.getvalue()
        if again != record:
            self.require_sound(record, reading)
        if value is None:
            raise Misfit("a record that fastavro cannot read")
        return value

    def columns(self, values: list[Any], reading: _Reading) -> tuple[Sequence[pa.Array], Mapping[int, str]]:
        builder = AvroColumns()
        return list(builder.fields(values, reading.step, self.record_type, np.arange(len(values)))), builder.misfits

    def rests(self, values: list[Any], reading: _Reading) -> list[str | None]:
        if not reading.keeps_more:
            return [None] * len(values)
        unnamed = (_unnamed(value, reading.writer.root, self.record_type) for value in values)
        return [None if more is None else _JSON.encode(more).decode() for more in unnamed]

    @cached_property
    def _reader(self) -> AvroSchema:
        return parse_avro(self.files.newest)


def _unnamed(value: Any, node: Node, kind: FieldType) -> Any:
    """Collects the fields of a value that a column's type does not name, nested as in the record."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return _unnamed(value, others[0], kind) if value is not None and len(others) == 1 else None
    if node.kind == "record" and kind.name == "struct":
        types, unnamed = dict(kind.fields), {}
        for name, part in node.fields.items():
            inner = _unnamed(value[name], part, types[name]) if name in types else _plain(value[name], part)
            if name not in types or inner is not None:
                unnamed[name] = inner
        return unnamed or None
    if node.kind in ("array", "map") and kind.element is not None:
        items: Sequence[tuple[Any, Any]] = sorted(value.items()) if node.kind == "map" else list(enumerate(value))
        parts = {str(place): _unnamed(item, node.parts[0], kind.element) for place, item in items}
        return {place: part for place, part in parts.items() if part is not None} or None
    return None


def _plain(value: Any, node: Node) -> Any:
    """Converts a value to its JSON form, with exact decimals."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return _plain(value, others[0]) if value is not None and len(others) == 1 else value
    if node.kind == "record":
        return {name: _plain(value[name], part) for name, part in node.fields.items()}
    if node.kind == "array":
        return [_plain(item, node.parts[0]) for item in value]
    if node.kind == "map":
        return {name: _plain(item, node.parts[0]) for name, item in sorted(value.items())}
    if node.logical == "decimal":
        return exact_decimal(node, int.from_bytes(value, "big", signed=True))
    factor, least, greatest = BOUNDS.get(node.logical, (1, 0, 0))
    if not node.logical or node.logical.startswith("time-") or not least <= value <= greatest:
        return value
    if node.logical == "date":
        return (EPOCH + timedelta(days=value)).date()
    at = EPOCH + timedelta(microseconds=value * factor)
    return at.replace(tzinfo=None) if node.logical.startswith("local") else at
