"""Parses Protobuf records to the columns of their topic, each by the schema that it was written by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from tables.engine.declarations.column_types import FIRST_US, LAST_US, FieldType
from tables.engine.events.json_fields import Misfit, at_place
from tables.engine.events.parsed_records import Parsed
from tables.engine.schemas.avro_schema import BadSchema
from tables.engine.schemas.protobuf_faults import require_sound
from tables.engine.schemas.protobuf_schema import (
    DOUBLE,
    ENUM,
    FLOAT,
    TIMESTAMP,
    Message,
    differences,
    is_map,
    is_wrapper,
    message_of,
)
from tables.engine.schemas.schema_files import Schema
from tables.engine.schemas.schema_framing import Framed
from tables.engine.schemas.schema_parser import Group, SchemaParser


@dataclass(frozen=True)
class _Reading:
    """How records of one message of one schema are read.

    Attributes:
        writer: the message that they were written as.
        keeps_more: that has fields which the reader's has not, and which the topic keeps without naming them.
    """

    writer: Message
    keeps_more: bool


class ProtobufParser(SchemaParser[_Reading]):
    """Parses Protobuf records: as the first message of the newest of the topic's files, fields by their numbers."""

    expected = "a Protobuf record"
    indexed = True

    def reading(self, schema: Schema, written: Framed) -> _Reading:
        writer = message_of(schema, written.message)
        if writer.name != self._reader.name:
            raise Misfit(f"Expected the message {self._reader.name}, got {writer.name} of the schema {written.schema}")
        differing = next(differences(writer, self._reader), None)
        if differing is not None:
            raise BadSchema(differing)
        unnamed = next(_unnamed_paths(writer, self._reader, self.record_type), None)
        self.refuse_unknown(unnamed, written)
        return _Reading(writer, unnamed is not None and self.topic.unknown_fields == "keep")

    def parse_group(self, values: pa.Array, group: Group, reading: _Reading) -> Parsed:
        _, _, buffer = values.buffers()
        data = memoryview(buffer)
        rows: list[int] = []
        records: list[list[Any]] = []
        rests: list[str | None] = []
        faults: dict[int, list[str]] = {}
        places = zip(group.rows.tolist(), group.starts.tolist(), group.ends.tolist(), strict=True)
        for row, start, end in places:
            try:
                cells, rest = self._read(bytes(data[start:end]), reading)
            except Misfit as misfit:
                faults[row] = [str(misfit) if misfit.path else misfit.reason]
            else:
                rows.append(row)
                records.append(cells)
                rests.append(rest)
        columns = {
            name: pa.array([cells[n] for cells in records], kind.arrow)
            for n, (name, kind) in enumerate(self.topic.record_types.items())
        }
        return Parsed(rows, columns, faults, rests)

    def _read(self, data: bytes, reading: _Reading) -> tuple[list[Any], str | None]:
        from google.protobuf.message import DecodeError

        try:
            message = self._class.FromString(data)
        except DecodeError as error:
            require_sound(reading.writer, data)
            raise Misfit(f"no Protobuf record: {error}") from None
        size = message.ByteSize()
        message.DiscardUnknownFields()
        has_unknown = message.ByteSize() != size
        if has_unknown:
            require_sound(reading.writer, data)
        cells = [read(message) for read in self._columns]
        return cells, self._rest(data, reading.writer) if reading.keeps_more else None

    def _rest(self, data: bytes, writer: Message) -> str | None:
        from google.protobuf.message_factory import GetMessageClass

        more = _unnamed(GetMessageClass(writer).FromString(data), writer, self._reader, self.record_type)
        return None if more is None else msgspec.json.encode(more).decode()

    @cached_property
    def _reader(self) -> Message:
        return message_of(self.topic.schema_files.newest)

    @cached_property
    def _class(self) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._reader)

    @cached_property
    def _columns(self) -> list[Callable[[Any], Any]]:
        fields = self._reader.fields_by_name
        return [_reader_of(fields[name], kind) for name, kind in self.topic.record_types.items()]


def _reader_of(field: Any, kind: FieldType) -> Callable[[Any], Any]:
    """Takes the value of a field from a message, as Arrow takes it.

    The function raises `Misfit` for a value that the type cannot hold.
    """
    name, place = field.name, f".{field.name}"
    if is_map(field):
        convert = _conversion(field.message_type.fields_by_name["value"], _element(kind))

        def entries(message: Any) -> Any:
            found = sorted(getattr(message, name).items())
            return [(key, at_place(f"{place}[{key}]", convert, cell)) for key, cell in found]

        return entries
    if field.is_repeated:
        convert = _conversion(field, _element(kind))
        if convert is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [
            at_place(f"{place}[{n}]", convert, cell) for n, cell in enumerate(getattr(message, name))
        ]
    convert = _conversion(field, kind)
    if field.has_presence:

        def present(message: Any) -> Any:
            if message.HasField(name):
                return at_place(place, convert, getattr(message, name))
            if not kind.nullable:
                raise Misfit("Object is missing the required field", place)
            return None

        return present
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: at_place(place, convert, getattr(message, name))


def _element(kind: FieldType) -> FieldType:
    return kind if kind.element is None else kind.element


def _conversion(field: Any, kind: FieldType) -> Callable[[Any], Any] | None:
    """Makes what Protobuf has what Arrow takes; None where it is that already."""
    message = field.message_type
    if message is not None:
        if message.full_name == TIMESTAMP:
            return _instant
        if is_wrapper(message):
            inner = _conversion(message.fields[0], kind)
            return lambda value: value.value if inner is None else inner(value.value)
        known = message.fields_by_name
        parts = [(name, _reader_of(known[name], part)) for name, part in kind.fields]
        return lambda value: {name: read(value) for name, read in parts}
    if field.type == ENUM:
        symbols = {number: value.name for number, value in field.enum_type.values_by_number.items()}

        def symbol(value: int) -> str:
            if value not in symbols:
                raise Misfit(f"Expected a symbol of {field.enum_type.name}, got the number {value}")
            return str(symbols[value])

        return symbol
    if field.type in (DOUBLE, FLOAT):
        return _finite
    return Decimal if kind.name == "decimal" else None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Misfit("Expected `double`, got a number that is not finite")
    return value


def _instant(value: Any) -> int:
    """Microseconds since 1970."""
    if not FIRST_US <= value.seconds * 1_000_000 <= LAST_US:
        raise Misfit("expected a year from 1 to 9999 in UTC")
    if not 0 <= value.nanos < 1_000_000_000 or value.nanos % 1_000:
        raise Misfit(f"Expected whole microseconds, got {value.nanos} nanoseconds")
    return int(value.seconds * 1_000_000 + value.nanos // 1_000)


def _struct_fields(field: Any, kind: FieldType) -> FieldType | None:
    """The type of the messages that a field holds, where a column takes them apart."""
    inner = _element(kind)
    return inner if inner.name == "struct" and not is_map(field) else None


def _unnamed_paths(writer: Message, reader: Message, kind: FieldType, path: str = "") -> Any:
    known = dict(kind.fields)
    for field in writer.fields:
        own = reader.fields_by_number.get(field.number)
        if own is None or own.name not in known:
            yield f"{path}{field.name}"
        elif (inner := _struct_fields(own, known[own.name])) is not None:
            yield from _unnamed_paths(field.message_type, own.message_type, inner, f"{path}{field.name}.")


def _unnamed(message: Any, writer: Message, reader: Message, kind: FieldType) -> Any:
    """The fields of a message that a column's type does not name, each under the names that lead to it."""
    from google.protobuf.json_format import MessageToDict

    known, found = dict(kind.fields), dict[str, Any]()
    for field, value in message.ListFields():
        own = reader.fields_by_number.get(field.number)
        if own is None or own.name not in known:
            found[field.name] = MessageToDict(message, preserving_proto_field_name=True)[field.name]
            continue
        inner = _struct_fields(own, known[own.name])
        if inner is None:
            continue
        if field.is_repeated:
            parts = {
                str(n): more
                for n, item in enumerate(value)
                if (more := _unnamed(item, field.message_type, own.message_type, inner)) is not None
            }
            more = parts or None
        else:
            more = _unnamed(value, field.message_type, own.message_type, inner)
        if more is not None:
            found[own.name] = more
    return found or None
