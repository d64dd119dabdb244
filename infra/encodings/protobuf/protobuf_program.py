"""Compiles a Protobuf message to the tables of numbers by which records are read as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infra.compiled import Numbers
from infra.encodings.column_types import FieldType
from infra.encodings.protobuf.protobuf_columns import (
    CODE,
    FIRST,
    GROUP,
    IS_TEXT,
    ITEM,
    LAST,
    MAY_PACK,
    NODE,
    NOTHING,
    NUMBER,
    SIGNED_32,
    SLOT,
    TRUTH,
    UNSIGNED_32,
    WHOLE,
    WIDTH,
    WIRE,
    ZIGZAG_32,
    ZIGZAG_64,
)
from infra.encodings.protobuf.protobuf_faults import SIZED, wire_type
from infra.encodings.protobuf.protobuf_schema import (
    BOOL,
    ENUM,
    FIXED32,
    FLOAT,
    INT32,
    SFIXED32,
    SINT32,
    SINT64,
    STRING,
    TIMESTAMP,
    UINT32,
    Message,
    is_map,
    is_wrapper,
)

_CODES = {
    **dict.fromkeys([INT32, ENUM, SFIXED32], SIGNED_32),
    **dict.fromkeys([UINT32, FIXED32, FLOAT], UNSIGNED_32),
    SINT32: ZIGZAG_32,
    SINT64: ZIGZAG_64,
    BOOL: TRUTH,
}


@dataclass
class Part:
    """A field of the reader's message where it has a column, or is part of one.

    Attributes:
        field: its descriptor.
        slot: where its values are put: of a message whether it is there, of a repeated field how many items it has.
        group: which values are put side by side, one for each message or item: 0 are the records.
        item: of a repeated field its items, of a map their values.
        key: of a map its keys.
        parts: of a message its fields.
    """

    field: Any
    kind: FieldType
    slot: int
    group: int
    item: Part | None = None
    key: Part | None = None
    parts: dict[str, Part] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """What `read_all` reads records by.

    Attributes:
        parts: column -> the field that it is of.
        steps: a row for each field of each message, in the order of their numbers.
        bounds: where the rows of each message begin; the first message is the record.
        rivals: slots of the other members of fields' oneofs, and whether one of the two is a message.
        slots: the group of each slot.
        groups: how many groups there are.
    """

    parts: Mapping[str, Part]
    steps: Numbers
    bounds: Numbers
    rivals: Numbers
    slots: Numbers
    groups: int


def compiled(writer: Message, reader: Message, kind: FieldType) -> Program:
    """The program that reads messages that were written as one message and are read as another."""
    compiler = _Compiler()
    parts = compiler.parts(reader, kind, 0)
    compiler.node(writer, reader, parts)
    return Program(
        parts,
        np.array([row for rows in compiler.nodes for row in rows], np.int64).reshape(-1, WIDTH),
        np.cumsum([0, *map(len, compiler.nodes)]).astype(np.int64),
        np.array(compiler.rivals, np.int64).reshape(-1, 2),
        np.array(compiler.slots or [0], np.int64),
        compiler.groups,
    )


class _Compiler:
    def __init__(self) -> None:
        self.nodes: list[list[list[int]]] = []
        self.rivals: list[tuple[int, int]] = []
        self.slots: list[int] = []
        self.groups = 1
        self._unread: dict[str, int] = {}

    def parts(self, message: Message, kind: FieldType, group: int) -> dict[str, Part]:
        known = message.fields_by_name
        return {name: self._part(known[name], inner, group) for name, inner in kind.fields}

    def _part(self, one: Any, kind: FieldType, group: int) -> Part:
        found = Part(one, kind, self._slot(group), group)
        if one.is_repeated:
            self.groups += 1
            inner, within = kind if kind.element is None else kind.element, self.groups - 1
            if is_map(one):
                fields = one.message_type.fields_by_name
                found.key = self._value(fields["key"], FieldType(name="string"), within)
                found.item = self._value(fields["value"], inner, within)
            else:
                found.item = self._value(one, inner, within)
            return found
        return self._value(one, kind, group, found)

    def _value(self, one: Any, kind: FieldType, group: int, found: Part | None = None) -> Part:
        found = found or Part(one, kind, self._slot(group), group)
        message = one.message_type
        if message is None:
            return found
        if message.full_name == TIMESTAMP or is_wrapper(message):
            found.parts = {inner.name: self._part(inner, kind, group) for inner in message.fields}
        else:
            found.parts = self.parts(message, kind, group)
        return found

    def _slot(self, group: int) -> int:
        self.slots.append(group)
        return len(self.slots) - 1

    def node(self, writer: Message, reader: Message | None, parts: Mapping[str, Part]) -> int:
        """The number of the message, whose fields are put where these parts say."""
        if not parts and writer.full_name in self._unread:
            return self._unread[writer.full_name]
        number = len(self.nodes)
        rows: list[list[int]] = []
        self.nodes.append(rows)
        if not parts:
            self._unread[writer.full_name] = number
        for one in sorted(writer.fields, key=lambda one: int(one.number)):
            rows.append(self._step(one, reader, parts))
        return number

    def _step(self, one: Any, reader: Message | None, parts: Mapping[str, Part]) -> list[int]:
        own = None if reader is None else reader.fields_by_number.get(one.number)
        part = None if own is None else parts.get(own.name)
        read = one if part is None else part.field
        row = [0] * WIDTH
        row[NUMBER], row[WIRE], row[CODE] = one.number, wire_type(one), _CODES.get(read.type, WHOLE)
        row[MAY_PACK], row[IS_TEXT] = one.is_repeated and wire_type(one) != SIZED, one.type == STRING
        row[SLOT], row[GROUP], row[ITEM], row[NODE] = NOTHING if part is None else part.slot, NOTHING, NOTHING, NOTHING
        item = part
        if part is not None and part.item is not None:
            item = part.item
            row[GROUP], row[ITEM] = item.group, item.slot
        if one.message_type is not None:
            inner = {} if item is None else item.parts
            if part is not None and part.key is not None and item is not None:
                inner = {"key": part.key, "value": item}
            row[NODE] = self.node(one.message_type, None if part is None else part.field.message_type, inner)
        row[FIRST] = len(self.rivals)
        if own is not None and own.containing_oneof is not None:
            for other in own.containing_oneof.fields:
                if other.name != own.name and other.name in parts:
                    is_message = other.message_type is not None or own.message_type is not None
                    self.rivals.append((parts[other.name].slot, int(is_message)))
        row[LAST] = len(self.rivals)
        return row
