"""Which schema a record was written by: Confluent's two framings, before the record or in a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

HEADER = "__value_schema_id"
"""The header that holds what the other framing writes before the record."""
_BY_ID, _BY_GUID = 0, 1
_MAX_INDEXES = 32  # messages within messages


@dataclass(frozen=True)
class Framed:
    """The framing of a record: the schema that it was written by, and where it begins.

    Attributes:
        schema: the id, or the GUID as text.
        start: where the record begins in the value.
        message: of Protobuf, which message of the schema: its number, then that of the one within it, and so on.
    """

    schema: int | str
    start: int
    message: tuple[int, ...] = ()


def framed(value: bytes, headers: Sequence[dict[str, Any]] | None, *, indexed: bool = False) -> Framed:
    """Read the framing of a value; the header counts where there is one, the last where there are several.

    Args:
        indexed: numbers of messages follow the id, as in Protobuf.

    Raises:
        ValueError: there is none, or it is cut off.
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
    """The numbers of messages, as zigzag varints behind their count; a lone 0 stands for the first message."""
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
