"""Builds columns of a topic from the fields of parsed records, from keys and from headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.encodings.column_types import FieldType
from twofold.tables.declare.record_fields import Field
from twofold.tables.declare.topic import Topic
from twofold_archive.format.record_columns import HEADERS


def field_columns(topic: Topic, parsed: Mapping[str, pa.Array], source: pa.Table) -> dict[str, pa.Array]:
    """Builds the values of each column of the schema.

    A key or a header that is no text if the column is one is null there; `undecodable` names it.

    Args:
        parsed: field of the record -> values.
        source: the raw records of these values.
    """
    columns_of: dict[str, pa.Array] = {}
    for column, kind in topic.types.items():
        given = topic.schema[column]
        if not isinstance(given, Field):
            columns_of[column] = parsed[column]
        elif given.source == "value":
            first, *within = given.path
            values = parsed[first]
            for name in within:
                values = pc.struct_field(values, name)
            columns_of[column] = (
                values if given.default is None else pc.fill_null(values, pa.scalar(given.default, kind.arrow))
            )
        else:
            raw = source["key"].to_pylist() if given.source == "key" else _headers(source, given.path[0])
            columns_of[column] = pa.array([_text(value) for value in raw] if kind.name == "string" else raw, kind.arrow)
    return columns_of


def undecodable(topic: Topic, source: pa.Table) -> dict[int, list[str]]:
    """Returns by row the faults of keys and headers: invalid text, or missing and required."""
    faults: dict[int, list[str]] = {}
    for column, kind in topic.types.items():
        given = topic.schema[column]
        if isinstance(given, Field) and given.source != "value":
            what = "key" if given.source == "key" else f"header {given.path[0]}"
            raw = source["key"].to_pylist() if given.source == "key" else _headers(source, given.path[0])
            for row, value in enumerate(raw):
                if reason := _fault(value, kind, what):
                    faults.setdefault(row, []).append(f"{reason} at `{column}`")
    return faults


def _fault(value: bytes | None, kind: FieldType, what: str) -> str:
    if value is None:
        return "" if kind.nullable else f"no {what}: expected `{kind.name}`"
    return f"the {what} is not UTF-8: expected `string`" if kind.name == "string" and _text(value) is None else ""


def _headers(source: pa.Table, name: str) -> Sequence[bytes | None]:
    """Returns the last header of that name of each record."""

    def last(headers: Sequence[dict[str, Any]] | None) -> bytes | None:
        return next((header["value"] for header in reversed(headers or ()) if header["key"] == name), None)

    return [last(headers) for headers in source[HEADERS].to_pylist()]


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
