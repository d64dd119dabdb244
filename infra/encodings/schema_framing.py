"""Reads which schema a record was written by: Confluent's two framings, before the record or in a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

HEADER = "__value_schema_id"
"""The header with the bytes that the other framing writes before the record."""
_BY_ID, _BY_GUID = 0, 1
_MAX_INDEXES = 32  # messages within messages


@dataclass(frozen=True)
class Framed:
    """The framing of a record: its writer's schema, and the position of its first byte.

    Attributes:
        schema: the id, or the GUID as text.
        start: the position in the value at which the record begins.
        message: for Protobuf, the message in the schema: its number, then the number of the one within it, and so on.
    """

    schema: int | str
    start: int
    message: tuple[int, ...] = ()


def framed(value: bytes, headers: Sequence[dict[str, Any]] | None, *, indexed: bool = False) -> Framed:
    """Parses the framing of a value; a header takes precedence, and the last one if there are several.

    Args:
        indexed: numbers of messages follow the id, as in Protobuf.

    Raises:
        ValueError: there is no framing, or it is cut off.
    """
    for header in reversed(headers or ()):
        if header["key"] == HEADER and header["value"] is not None:
            frame, _ = _read(header["value"], f"the header {HEADER}", indexed=indexed)
            return Framed(frame.schema, 0, frame.message)
    return _read(value, "the value", indexed=indexed)[0]


def _read(data: bytes, where: str, *, indexed: bool) -> tuple[Framed, int]:
    magic = data[0] if data else None
    end = {_BY_ID: 5, _BY_GUID: 17}.get(-1 if magic is None else magic, 0)
    if not end:
        begins = "is empty" if magic is None else f"begins with the byte {magic}"
        raise ValueError(f"no schema id: {where} {begins}, expected {_BY_ID} and an id or {_BY_GUID} and a GUID")
    if len(data) < end:
        raise ValueError(f"no schema id: {where} ends within it")
    name: int | str = int.from_bytes(data[1:5], "big") if magic == _BY_ID else str(UUID(bytes=data[1:17]))
    message: tuple[int, ...] = ()
    if indexed:
        message, end = _indexes(data, end, where)
    return Framed(name, end, message), end


def _indexes(data: bytes, at: int, where: str) -> tuple[tuple[int, ...], int]:
    """Parses message numbers, zigzag varints after their count; a lone 0 is the first message."""
    count, at = _varint(data, at, where)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_INDEXES:
        raise ValueError(f"no message: {where} names {count} messages within each other")
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at, where)
        indexes.append(index)
    return tuple(indexes), at


def _varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift <= 28:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError(f"no message: {where} ends within the numbers of its message")
