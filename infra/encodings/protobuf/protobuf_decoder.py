"""Parses Protobuf records to the columns of their topic, each by the schema that it was written by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.protobuf.protobuf_columns import ProtobufColumns
from twofold.infra.encodings.protobuf.protobuf_faults import require_sound
from twofold.infra.encodings.protobuf.protobuf_schema import Message, checks_text, differences, is_map, message_of
from twofold.infra.encodings.record_format import BadSchema, Misfit
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.encodings.schema_framing import Framed
from twofold.infra.encodings.schema_parser import SchemaParser


@dataclass(frozen=True)
class _Reading:
    """How records of one message of one writer's schema are read.

    Attributes:
        writer, read_as: the message of the writer's schema, and of the newest schema, as classes of the runtime.
        keeps_more: the writer's message has fields that the reader's lacks, and the topic keeps unnamed fields.
        checks_text: the runtime refuses texts that are not UTF-8.
    """

    writer: Any
    read_as: Any
    keeps_more: bool
    checks_text: bool


class ProtobufParser(SchemaParser[_Reading]):
    """Parses Protobuf records as the first message of the topic's newest schema file, fields by their numbers."""

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
        keeps_more = unnamed is not None and self.format.unknown_fields == "keep"
        classes = GetMessageClass(writer), GetMessageClass(self._reader)
        return _Reading(*classes, keeps_more, checks_text(writer.file))

    def require_sound(self, record: bytes, reading: _Reading) -> None:
        require_sound(reading.writer.DESCRIPTOR, record)

    def read(self, record: bytes, reading: _Reading) -> tuple[Any, Any]:
        """Reads a record as the writer's message and as the newest schema's message, and verifies it.

        The runtime skips unknown fields and values of another type. A record has none of these if its size is unchanged
        after they are discarded.
        """
        try:
            message = reading.writer.FromString(record)
        except DecodeError:
            self.require_sound(record, reading)
            raise Misfit("no Protobuf record") from None
        if missing := message.FindInitializationErrors():
            raise Misfit("Object is missing the required field", f".{missing[0]}")
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size or not reading.checks_text:
            self.require_sound(record, reading)
        if reading.read_as is reading.writer:
            return message, message
        try:
            return message, reading.read_as.FromString(record)
        except DecodeError as error:
            raise Misfit(f"the newest schema cannot read it: {error}") from None

    def columns(self, values: list[Any], reading: _Reading) -> tuple[Sequence[pa.Array], Mapping[int, str]]:
        builder, messages = ProtobufColumns(), [read_as for _, read_as in values]
        columns = builder.fields(messages, self._reader, self.record_type, np.arange(len(values)))
        return list(columns), builder.misfits

    def rests(self, values: list[Any], reading: _Reading) -> list[str | None]:
        if not reading.keeps_more:
            return [None] * len(values)
        writer = reading.writer.DESCRIPTOR
        unnamed = (_unnamed(written, writer, self._reader, self.record_type) for written, _ in values)
        return [None if more is None else msgspec.json.encode(more).decode() for more in unnamed]

    @cached_property
    def _reader(self) -> Message:
        return message_of(self.files.newest)


def _struct_fields(field: Any, kind: FieldType) -> FieldType | None:
    """Returns the struct type of the messages in a field, if a column has one for them."""
    inner = kind.element or kind
    return inner if inner.name == "struct" and not is_map(field) else None


def _unnamed_paths(writer: Message, reader: Message, kind: FieldType, path: str = "") -> Any:
    types = dict(kind.fields)
    for field in writer.fields:
        own = reader.fields_by_number.get(field.number)
        if own is None or own.name not in types:
            yield f"{path}{field.name}"
        elif (inner := _struct_fields(own, types[own.name])) is not None:
            yield from _unnamed_paths(field.message_type, own.message_type, inner, f"{path}{field.name}.")


def _unnamed(message: Any, writer: Message, reader: Message, kind: FieldType) -> Any:
    """Collects the fields of a message that a column's type does not name, nested as in the record."""
    types, unnamed = dict(kind.fields), dict[str, Any]()
    for one, value in message.ListFields():
        own = reader.fields_by_number.get(one.number)
        if own is None or own.name not in types:
            unnamed[one.name] = MessageToDict(message, preserving_proto_field_name=True)[one.name]
            continue
        inner = _struct_fields(own, types[own.name])
        if inner is None:
            continue
        if one.is_repeated:
            parts = {
                str(n): more
                for n, item in enumerate(value)
                if (more := _unnamed(item, one.message_type, own.message_type, inner)) is not None
            }
            more = parts or None
        else:
            more = _unnamed(value, one.message_type, own.message_type, inner)
        if more is not None:
            unnamed[own.name] = more
    return unnamed or None
