"""Reads a declared type from JSON: the type for msgspec, the checks that it lacks, and the fields that it skips."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.record_format import Misfit

Convert = Callable[[Any], Any]
MOST_DEPTH = 500
"""How deep objects and arrays may be nested: at about 990 parsers end, some before others."""

_PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "int": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "long": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "double": float,
    "date": date,
    "timestamp": Annotated[datetime, msgspec.Meta(tz=True)],
    "timestamp_ntz": Annotated[datetime, msgspec.Meta(tz=False)],
    "binary": bytes,  # in base64
    "decimal": Decimal,
    "json": msgspec.Raw,
}


_NAME, _ODD = b'":', re.compile(rb'"\s+:|\\u(?:0022|003[aA])')
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Takes time that is linear in the value, also of a text without an end."""


class _RepeatedKey(Exception):
    pass


def python_type(kind: FieldType) -> Any:
    """Returns the Python type by which msgspec parses a field; a field that may be absent can be `UNSET`."""
    python = _python_type(kind)
    return python | msgspec.UnsetType if kind.nullable else python


def struct_type(
    fields: Sequence[tuple[str, FieldType]], name: str = "struct", *, forbids: bool = False
) -> type[msgspec.Struct]:
    """Returns the struct by which msgspec parses an object; its attributes are `f0`, `f1`, ..., for any field names.

    Args:
        forbids: a field of another name is a fault.
    """
    members: list[Any] = [
        (f"f{n}", python_type(kind), msgspec.UNSET) if kind.nullable else (f"f{n}", python_type(kind))
        for n, (_, kind) in enumerate(fields)
    ]
    names = {f"f{n}": field for n, (field, _) in enumerate(fields)}
    return msgspec.defstruct(name, members, kw_only=True, rename=names, forbid_unknown_fields=forbids, gc=False)


def _python_type(kind: FieldType) -> Any:
    if kind.name == "json":
        return msgspec.Raw  # null among it
    python: Any = _PYTHON_TYPES.get(kind.name)
    if kind.name == "struct":
        python = struct_type(kind.fields)
    elif kind.element is not None:
        inner = _python_type(kind.element)
        python = dict.__class_getitem__((str, inner)) if kind.name == "map" else list.__class_getitem__(inner)
    return python | None if kind.nullable else python


def conversion(kind: FieldType, *, inner: bool = False) -> Convert | None:
    """Returns the function that converts a value from msgspec for Arrow, or None if no conversion is needed.

    The function raises `Misfit` for a value that the type cannot hold. Columns of instants are checked at once later,
    not value by value.
    """
    if kind.name in _CONVERSIONS and (inner or kind.name != "timestamp"):
        convert = _CONVERSIONS[kind.name]
        one: Convert | None = lambda value: convert(value, kind)  # noqa: E731
    elif kind.name == "struct":
        one = struct_conversion(kind.fields)
    elif kind.element is not None:
        one = _of_elements(conversion(kind.element, inner=True), is_map=kind.name == "map")
    else:
        one = None
    if one is None or not kind.nullable:
        return one
    some = one
    return lambda value: value if value is None or value is msgspec.UNSET else some(value)


def unknown_fields(value: Any, kind: FieldType, path: str = "") -> Iterator[str]:
    """Yields the paths of fields of a JSON value that the type does not name."""
    if kind.name == "struct" and isinstance(value, dict):
        types = dict(kind.fields)
        for name, cell in value.items():
            if name in types:
                yield from unknown_fields(cell, types[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif kind.element is not None and value:
        cells = value.items() if kind.name == "map" else enumerate(value)
        for place, cell in cells:
            yield from unknown_fields(cell, kind.element, f"{path}[{place}]")


def rest(value: bytes | msgspec.Raw, kind: FieldType) -> dict[str, Any] | None:
    """Collects the fields that the type does not name, with their JSON unchanged, nested as in the record.

    Fields within an array are keyed by the number of their element.
    """
    if kind.name == "struct":
        types, unnamed = dict(kind.fields), {}
        for name, cell in (_MEMBERS.decode(value) or {}).items():
            inner = rest(cell, types[name]) if name in types else cell
            if inner is not None:
                unnamed[name] = inner
        return unnamed or None
    if kind.element is None or kind.element.is_flat:
        return None
    cells = (_MEMBERS.decode(value) or {}).items() if kind.name == "map" else enumerate(_ELEMENTS.decode(value) or ())
    parts = {str(place): rest(cell, kind.element) for place, cell in cells}
    return {place: part for place, part in parts.items() if part is not None} or None


def is_deep(value: bytes) -> bool:
    """Whether objects and arrays are nested deeper than `MOST_DEPTH`; of any bytes."""
    if len(value) <= MOST_DEPTH or value.count(b"[") + value.count(b"{") <= MOST_DEPTH:
        return False
    bare = np.frombuffer(_TEXT.sub(b"", value), np.uint8)
    steps = np.isin(bare, list(b"[{")).astype(np.int32) - np.isin(bare, list(b"]}"))
    return bool(steps.cumsum().max(initial=0) > MOST_DEPTH)


def repeated_key(value: bytes) -> str | None:
    """Returns a key that occurs twice in one object of the value, or None."""
    if value.count(_NAME) == msgspec.json.encode(msgspec.json.decode(value)).count(_NAME) and not _ODD.search(value):
        return None

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, cell in items:
            if key in found:
                raise _RepeatedKey(key)
            found[key] = cell
        return found

    try:
        json.loads(value, object_pairs_hook=pairs)
    except _RepeatedKey as repeated:
        return str(repeated.args[0])
    return None


def _decimal(value: Decimal, kind: FieldType) -> Decimal:
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    if isinstance(exponent, int):
        if not value:
            return Decimal(0)
        trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
        if -exponent - trailing <= kind.scale and len(digits) + exponent <= kind.precision - kind.scale:
            return value
    raise Misfit(f"Expected decimal({kind.precision},{kind.scale}), got {value}")


def _json(value: msgspec.Raw, kind: FieldType) -> str | None:
    text = bytes(value)
    repeated = repeated_key(text)
    if repeated is not None:
        raise Misfit(f"the key {repeated!r} is repeated")
    if text != b"null":
        return text.decode()
    if not kind.nullable:
        raise Misfit("Expected `json`, got `null`")
    return None


def _instant(value: datetime, _: FieldType) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Misfit("expected a year from 1 to 9999 in UTC") from None


_CONVERSIONS: dict[str, Callable[[Any, FieldType], Any]] = {"decimal": _decimal, "json": _json, "timestamp": _instant}
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw] | None)


def struct_conversion(fields: Sequence[tuple[str, FieldType]], *, inner: bool = True) -> Convert | None:
    """Returns the `conversion` of an object, in place, or None if no conversion is needed."""
    found = [(f"f{n}", f".{name}", conversion(kind, inner=inner)) for n, (name, kind) in enumerate(fields)]
    conversions = [(attribute, place, convert) for attribute, place, convert in found if convert is not None]
    if not conversions:
        return None

    def convert(value: Any) -> Any:
        for attribute, place, inner in conversions:
            setattr(value, attribute, at_place(place, inner, getattr(value, attribute)))
        return value

    return convert


def _of_elements(inner: Convert | None, *, is_map: bool) -> Convert | None:
    if is_map:
        # In one order, so that equal maps are equal in every engine.
        return lambda value: {k: at_place(f"[{k}]", inner, cell) for k, cell in sorted(value.items())}
    if inner is None:
        return None
    return lambda value: [at_place(f"[{n}]", inner, cell) for n, cell in enumerate(value)]


def at_place(place: str, convert: Convert | None, value: Any) -> Any:
    """Converts a value, and adds the place to a `Misfit`."""
    if convert is None:
        return value
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(misfit.reason, place + misfit.path) from None
