"""Reads the bytes of one Protobuf message strictly, to find the place at which they do not fit their schema."""

from __future__ import annotations

import math
import struct
from typing import Any

from twofold.infra.encodings.protobuf.protobuf_schema import (
    BYTES,
    DOUBLE,
    ENUM,
    FIXED32,
    FIXED64,
    FLOAT,
    MESSAGE,
    SFIXED32,
    SFIXED64,
    STRING,
    Message,
)
from twofold.infra.encodings.record_format import Misfit

VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
_WIRE = {
    **dict.fromkeys([DOUBLE, FIXED64, SFIXED64], EIGHT),
    **dict.fromkeys([FLOAT, FIXED32, SFIXED32], FOUR),
    **dict.fromkeys([STRING, BYTES, MESSAGE], SIZED),
}


def wire_type(field: Any) -> int:
    """Returns the wire type of a single value of a field."""
    return _WIRE.get(field.type, VARINT)


def require_sound(message: Message, data: bytes) -> None:
    """Refuses bytes that do not fit the message of their writer's schema.

    Raises:
        Misfit: names the first place that does not fit: cut off, another type, an unknown field.
    """
    _read(message, data, 0, len(data))


def _read(message: Message, data: bytes, at: int, end: int) -> None:
    seen: dict[int, int] = {}
    while at < end:
        tag, at = _varint(data, at, end, "the number of a field")
        number, wire = tag >> 3, tag & 7
        field = message.fields_by_number.get(number)
        if field is None:
            raise Misfit(f"the field {number} is none of {message.name}")
        place = f".{field.name}"
        if field.is_repeated:
            place += f"[{seen.get(number, 0)}]"
            seen[number] = seen.get(number, 0) + 1
        try:
            at = _field(field, wire, data, at, end)
        except Misfit as misfit:
            raise Misfit(misfit.reason, place + misfit.path) from None


def _field(field: Any, wire: int, data: bytes, at: int, end: int) -> int:
    message, expected = field.message_type, wire_type(field)
    is_packed = wire == SIZED and expected != SIZED and field.is_repeated
    if wire != expected and not is_packed:
        raise Misfit(f"Expected the wire type {expected}, got {wire}")
    if wire == SIZED:
        size, at = _varint(data, at, end, "a length")
        if size > end - at:
            raise Misfit(f"Expected {size} bytes, got the end of the record")
        if message is not None:
            _read(message, data, at, at + size)
        elif field.type == STRING:
            try:
                data[at : at + size].decode()
            except UnicodeDecodeError as error:
                raise Misfit(f"Expected UTF-8, got the byte {data[at + error.start]:#04x}") from None
        elif is_packed:
            last, inner = at + size, at
            while inner < last:
                inner = _scalar(field, expected, data, inner, last)
        return at + size
    return _scalar(field, wire, data, at, end)


def _scalar(field: Any, wire: int, data: bytes, at: int, end: int) -> int:
    """Reads a number and returns the position after it."""
    start, at = at, _plain(wire, data, at, end)
    code = {DOUBLE: "<d", FLOAT: "<f"}.get(field.type)
    if code and not math.isfinite(struct.unpack(code, data[start:at])[0]):
        raise Misfit("Expected `double`, got a number that is not finite")
    if field.type == ENUM:
        number = _varint(data, start, at, "a number")[0] & 0xFFFFFFFF
        number -= (number >> 31) << 32
        if number not in field.enum_type.values_by_number:
            raise Misfit(f"Expected a symbol of {field.enum_type.name}, got the number {number}")
    return at


def _plain(wire: int, data: bytes, at: int, end: int) -> int:
    if wire == VARINT:
        return _varint(data, at, end, "a number")[1]
    size = 8 if wire == EIGHT else 4
    if size > end - at:
        raise Misfit(f"Expected {size} bytes, got the end of the record")
    return at + size


def _varint(data: bytes, at: int, end: int, what: str) -> tuple[int, int]:
    number = shift = 0
    while at < end:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise Misfit(f"Expected {what}, got more bytes than a number has")
    raise Misfit(f"Expected {what}, got the end of the record")
