"""Parses Protobuf records to the columns of their topic, each by the schema that it was written by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.compiled import Bytes, Numbers
from infra.encodings.byte_loops import gather
from infra.encodings.column_types import FieldType
from infra.encodings.parsed_records import Parsed
from infra.encodings.protobuf.protobuf_columns import read_all
from infra.encodings.protobuf.protobuf_faults import require_sound
from infra.encodings.protobuf.protobuf_program import Part, Program, compiled
from infra.encodings.protobuf.protobuf_schema import (
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
from infra.encodings.record_format import BadSchema, Misfit
from infra.encodings.schema_files import Schema
from infra.encodings.schema_framing import Framed
from infra.encodings.schema_parser import Group, SchemaParser
from infra.instants import FIRST_US, LAST_US

_Flags = npt.NDArray[np.bool_]
_NANOS = 1_000_000_000


@dataclass(frozen=True)
class _Reading:
    """How records of one message of one schema are read.

    Attributes:
        writer: the message that they were written as.
        program: what reads them.
        keeps_more: that has fields which the reader's has not, and which the topic keeps without naming them.
    """

    writer: Message
    program: Program
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
        keeps = self.format.unknown_fields == "keep"
        return _Reading(writer, compiled(writer, self._reader, self.record_type), unnamed is not None and keeps)

    def parse_group(self, values: pa.Array, group: Group, reading: _Reading) -> Parsed:
        _, _, buffer = values.buffers()
        data = np.frombuffer(buffer, np.uint8)
        sound, columns, misfits = _columns(reading.program, data, group.starts, group.ends)
        faults: dict[int, list[str]] = {}
        for n in np.flatnonzero(sound == 0).tolist():
            record = data[group.starts[n] : group.ends[n]].tobytes()
            faults[int(group.rows[n])] = [_reason(reading.writer, record)]
        if misfits:
            rows = group.rows[sound > 0]
            faults.update((int(rows[n]), [_text(misfit)]) for n, misfit in misfits.items())
            whole = np.array([n not in misfits for n in range(len(rows))])
            sound[np.flatnonzero(sound)[~whole]] = 0
            columns = {name: column.filter(pa.array(whole)) for name, column in columns.items()}
        rows = group.rows[sound > 0].tolist()
        rests: list[str | None] = [None] * len(rows)
        if reading.keeps_more:
            places = zip(group.starts[sound > 0].tolist(), group.ends[sound > 0].tolist(), strict=True)
            rests = [self._rest(data[start:end].tobytes(), reading.writer) for start, end in places]
        return Parsed(rows, columns, faults, rests)

    def _rest(self, data: bytes, writer: Message) -> str | None:
        from google.protobuf.message_factory import GetMessageClass

        more = _unnamed(GetMessageClass(writer).FromString(data), writer, self._reader, self.record_type)
        return None if more is None else msgspec.json.encode(more).decode()

    @cached_property
    def _reader(self) -> Message:
        return message_of(self.files.newest)


def _reason(writer: Message, record: bytes) -> str:
    """Why a record is none."""
    try:
        require_sound(writer, record)
    except Misfit as misfit:
        return _text(misfit)
    return "no Protobuf record"


def _text(misfit: Misfit) -> str:
    return str(misfit) if misfit.path else misfit.reason


def _struct_fields(field: Any, kind: FieldType) -> FieldType | None:
    """The type of the messages that a field holds, where a column takes them apart."""
    inner = kind.element or kind
    return inner if inner.name == "struct" and not is_map(field) else None


def _unnamed_paths(writer: Message, reader: Message, kind: FieldType, path: str = "") -> Any:
    known = dict(kind.fields)
    for one in writer.fields:
        own = reader.fields_by_number.get(one.number)
        if own is None or own.name not in known:
            yield f"{path}{one.name}"
        elif (inner := _struct_fields(own, known[own.name])) is not None:
            yield from _unnamed_paths(one.message_type, own.message_type, inner, f"{path}{one.name}.")


def _unnamed(message: Any, writer: Message, reader: Message, kind: FieldType) -> Any:
    """The fields of a message that a column's type does not name, each under the names that lead to it."""
    from google.protobuf.json_format import MessageToDict

    known, found = dict(kind.fields), dict[str, Any]()
    for one, value in message.ListFields():
        own = reader.fields_by_number.get(one.number)
        if own is None or own.name not in known:
            found[one.name] = MessageToDict(message, preserving_proto_field_name=True)[one.name]
            continue
        inner = _struct_fields(own, known[own.name])
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
            found[own.name] = more
    return found or None


@dataclass(frozen=True)
class _Places:
    """Which record a value is of, and where in it; the values of a group are numbered.

    Attributes:
        faults: record -> the first of its values that its type cannot hold.
        locate: the number of a value -> that of its record, and its path.
    """

    faults: dict[int, Misfit] = field(default_factory=dict)
    locate: Callable[[int], tuple[int, str]] = lambda number: (number, "")

    def refuse(self, bad: _Flags, reason: Callable[[int], str]) -> None:
        """Note why each of these values is none of its type; `reason` is asked by number."""
        if bad.any():
            for number in np.flatnonzero(bad).tolist():
                record, path = self.locate(number)
                self.faults.setdefault(record, Misfit(reason(number), path))

    def at(self, find: Callable[[int], tuple[int, str]]) -> _Places:
        """The places of values within these, which `find` gives the number of the outer one, and the path from it."""

        def locate(number: int) -> tuple[int, str]:
            outer, inner_path = find(number)
            record, path = self.locate(outer)
            return record, path + inner_path

        return replace(self, locate=locate)


def _columns(
    program: Program, data: Bytes, starts: Numbers, ends: Numbers
) -> tuple[Bytes, dict[str, pa.Array], dict[int, Misfit]]:
    """Which records are what their schema says; the columns of those; which of those have a value that none can hold.

    What a column has of a record of the last kind is no value.
    """
    sound, counts, nothing = np.zeros(len(starts), np.uint8), np.zeros(program.groups, np.int64), np.zeros(0, np.int64)
    tables = program.steps, program.bounds, program.rivals
    read_all(data, starts, ends, sound, *tables, nothing, counts, False, nothing, nothing, sound)
    sizes = counts[program.slots]
    bases, total = np.cumsum(sizes) - sizes, int(sizes.sum())
    ones, others, there = np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.uint8)
    read_all(data, starts, ends, sound, *tables, bases, np.zeros_like(counts), True, ones, others, there)
    values, places = _Values(data, bases, counts, ones, others, there), _Places()
    odd = sound[sound > 0] > 1
    places.refuse(odd, lambda _: "Expected one member of a oneof, got several, one of which is a message")
    columns = {name: values.column(part, None, places) for name, part in program.parts.items()}
    return sound, columns, places.faults


@dataclass(frozen=True)
class _Values:
    """What was read of all slots."""

    data: Bytes
    bases: Numbers
    counts: Numbers
    ones: Numbers
    others: Numbers
    there: Bytes

    def column(self, part: Part, within: _Flags | None, places: _Places) -> pa.Array:
        """The values of a field of messages, those of which are there that `within` says."""
        name = part.field.name
        if part.item is not None:
            return self._list(part, part.item, places)
        here = places.at(lambda number: (number, f".{name}"))
        if not part.field.has_presence:
            return self._values(part, within, here, None)
        has = self.there[self._range(part)] == 1
        if within is not None:
            has &= within
        if not part.kind.nullable:
            here.refuse(~has if within is None else within & ~has, lambda _: "Object is missing the required field")
        return self._values(part, has, here, None if has.all() else has)

    def _range(self, part: Part) -> slice:
        base = self.bases[part.slot]
        return slice(base, base + self.counts[part.group])

    def _list(self, part: Part, item: Part, places: _Places) -> pa.Array:
        """Arrays, and maps: their entries in the order of the keys, of two with one key the later."""
        name, arrow = part.field.name, part.kind.arrow
        ends = np.concatenate([[0], np.cumsum(self.ones[self._range(part)])])

        def owner(number: int) -> int:
            return int(np.searchsorted(ends, number, side="right")) - 1

        if part.key is None:
            places = places.at(lambda number: (owner(number), f".{name}[{number - ends[owner(number)]}]"))
            items = self._values(item, None, places, None)
        else:
            keys = self._values(part.key, None, places, None)
            places = places.at(lambda number: (owner(number), f".{name}[{keys[number]}]"))
            items = self._values(item, None, places, None)
            texts, bounds = keys.to_pylist(), ends.tolist()
            order, sizes = [], [0]
            for start, end in pairwise(bounds):
                newest = {texts[n]: n for n in range(start, end)}
                order += [newest[key] for key in sorted(newest)]
                sizes.append(len(newest))
            chosen, ends = pa.array(order, pa.int64()), np.cumsum(sizes)
            fields = [arrow.key_field, arrow.item_field]
            items = pa.StructArray.from_arrays([keys.take(chosen), items.take(chosen)], fields=fields)
        offsets = pa.py_buffer(ends.astype(np.int32))
        return pa.Array.from_buffers(arrow, len(ends) - 1, [None, offsets], children=[items])

    def _values(self, part: Part, has: _Flags | None, places: _Places, mask: _Flags | None) -> pa.Array:
        """Values of which those count that are there, and those are null that `mask` says are not."""
        arrow, message, here = part.kind.arrow, part.field.message_type, self._range(part)
        size, one, other = here.stop - here.start, self.ones[here], self.others[here]
        valid = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
        if message is not None:
            if message.full_name == TIMESTAMP:
                found = self._instants(part, has, places)
                return pa.Array.from_buffers(arrow, size, [valid, pa.py_buffer(found)])
            if is_wrapper(message):
                return self._values(part.parts["value"], has, places, mask)
            children = [self.column(inner, has, places) for inner in part.parts.values()]
            return pa.Array.from_buffers(arrow, size, [valid], children=children)
        if part.field.type == ENUM:
            return self._symbols(part, one, has, places, mask)
        if part.kind.name in ("string", "binary"):
            text = np.empty(other.sum(), np.uint8)
            gather(self.data, one, other, text)
            offsets = np.concatenate([[0], np.cumsum(other)]).astype(np.int32)
            return pa.Array.from_buffers(arrow, size, [valid, pa.py_buffer(offsets), pa.py_buffer(text)])
        if part.field.type in (DOUBLE, FLOAT):
            floats = one.view(np.float64) if part.field.type == DOUBLE else one.astype(np.uint32).view(np.float32)
            places.refuse(~np.isfinite(floats), lambda _: "Expected `double`, got a number that is not finite")
            return pa.Array.from_buffers(arrow, size, [valid, pa.py_buffer(floats.astype(np.float64))])
        if part.kind.name == "boolean":
            return pa.Array.from_buffers(
                arrow, size, [valid, pa.py_buffer(np.packbits(one.astype(np.uint8), bitorder="little"))]
            )
        if part.kind.name == "decimal":  # of 64 bits without a sign
            one = np.column_stack([one, np.zeros_like(one)])
        elif part.kind.name == "int":
            one = one.astype(np.int32)
        return pa.Array.from_buffers(arrow, size, [valid, pa.py_buffer(np.ascontiguousarray(one))])

    def _symbols(
        self, part: Part, numbers: Numbers, has: _Flags | None, places: _Places, mask: _Flags | None
    ) -> pa.Array:
        enum = part.field.enum_type
        known, nth = np.unique(numbers, return_inverse=True)
        names = {number: value.name for number, value in enum.values_by_number.items()}
        symbols = [names.get(number) for number in known.tolist()]
        foreign = np.array([symbol is None for symbol in symbols], bool)[nth]
        places.refuse(
            foreign if has is None else foreign & has,
            lambda number: f"Expected a symbol of {enum.name}, got the number {numbers[number]}",
        )
        chosen = pa.array(nth.astype(np.int64), mask=None if mask is None else ~mask)
        return pa.array(symbols, part.kind.arrow).take(chosen)

    def _instants(self, part: Part, has: _Flags | None, places: _Places) -> Numbers:
        seconds, nanos = (self.ones[self._range(part.parts[name])] for name in ("seconds", "nanos"))
        counted = np.ones(len(seconds), bool) if has is None else has
        beyond = (seconds < FIRST_US // 1_000_000) | (seconds > LAST_US // 1_000_000)
        places.refuse(beyond & counted, lambda _: "expected a year from 1 to 9999 in UTC")
        places.refuse(
            counted & ((nanos < 0) | (nanos >= _NANOS) | (nanos % 1_000 != 0)),
            lambda number: f"Expected whole microseconds, got {nanos[number]} nanoseconds",
        )
        return np.where(beyond, 0, seconds) * 1_000_000 + nanos // 1_000
