"""Builds columns of the reader's schema from Avro values, which fastavro reads by the schema of their writer."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from twofold.infra.encodings.avro.avro_resolution import Step
from twofold.infra.encodings.avro.avro_schema import BOUNDS, Node
from twofold.infra.encodings.column_builder import ColumnBuilder, Numbers
from twofold.infra.encodings.column_types import FieldType

_WHOLE = {"int": (1, -(2**31), 2**31 - 1), "long": (1, -(2**63), 2**63 - 1)}
_PYTHON_TYPES = {
    **dict.fromkeys(["int", "long"], int),
    **dict.fromkeys(["float", "double"], float),
    **dict.fromkeys(["string", "enum"], str),
    **dict.fromkeys(["bytes", "fixed"], bytes),
    "boolean": bool,
    "array": list,
    "null": type(None),
}
_UNKNOWN = -2
_NO_SUCH_VALUE = "a value that the newest schema has not: a branch of a union, or a symbol"


class AvroColumns(ColumnBuilder):
    """Builds the columns of a batch of Avro records."""

    def column(self, values: list[Any], step: Step, kind: FieldType, records: Numbers) -> pa.Array:
        """Builds the column of a field; a value that is None is null, or belongs to a null struct."""
        if step.kind == "union":
            return self._union(values, step, kind, records)
        if step.is_refused:
            self.refuse(np.ones(len(records), bool), records, _NO_SUCH_VALUE)
            return pa.nulls(len(values), kind.arrow)
        if step.kind == "record":
            return self.struct(kind, list(self.fields(values, step, kind, records)), values)
        if kind.element is not None and step.kind in ("array", "map"):
            item, inner = step.steps[0], kind.element
            build = self.lists if step.kind == "array" else self.maps
            return build(kind, values, records, lambda items, of: self.column(items, item, inner, of))
        return self._scalars(values, step, kind, records)

    def fields(self, values: list[Any], step: Step, kind: FieldType, records: Numbers) -> Iterator[pa.Array]:
        """Yields the columns of those fields of a record that the type names."""
        by_name = dict(zip(step.names, step.steps, strict=True))
        written_as = dict(zip(step.names, step.writer.names, strict=False))
        has_nulls = None in values
        for name, inner in kind.fields:
            part = by_name[name]
            if part.kind == "default" and part.reader is not None:
                default = pa.array([default_value(part.reader, part.default)], inner.arrow)
                yield default.take(pa.array(np.zeros(len(values), np.int64)))
                continue
            own = written_as[name]
            parts = (
                [value if value is None else value[own] for value in values] if has_nulls else [v[own] for v in values]
            )
            yield self.column(parts, part, inner, records)

    def _union(self, values: list[Any], step: Step, kind: FieldType, records: Numbers) -> pa.Array:
        """Builds the column of a union, each value by its writer's branch; usually one branch, and null."""
        others = [branch for branch in step.steps if branch.writer.kind != "null"]
        null = next((branch for branch in step.steps if branch.writer.kind == "null"), None)
        if null is not None and null.is_refused:
            self.refuse(np.array([value is None for value in values], bool), records, _NO_SUCH_VALUE)
        if len(others) == 1:
            return self._branch(values, others[0], kind, records)
        chosen = np.array([-1 if value is None else _branch_of(value, others) for value in values], np.int64)
        self.refuse(chosen == _UNKNOWN, records, "a value of a union whose types cannot be distinguished")
        parts, places = [pa.nulls(int((chosen < 0).sum()), kind.arrow)], [np.flatnonzero(chosen < 0)]
        for number, branch in enumerate(others):
            here = np.flatnonzero(chosen == number)
            parts.append(self._branch([values[n] for n in here.tolist()], branch, kind, records[here]))
            places.append(here)
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def _branch(self, values: list[Any], branch: Step, kind: FieldType, records: Numbers) -> pa.Array:
        if branch.is_refused:
            self.refuse(np.array([value is not None for value in values], bool), records, _NO_SUCH_VALUE)
            return pa.nulls(len(values), kind.arrow)
        return self.column(values, branch, kind, records)

    def _scalars(self, values: list[Any], step: Step, kind: FieldType, records: Numbers) -> pa.Array:
        writer = step.writer
        if step.kind == "enum" and step.reader is not None:
            symbols = _symbols(writer, step.reader)
            values = [value if value is None else symbols[value] for value in values]
            missing = np.array([value == "" for value in values], bool)
            self.refuse(missing, records, _NO_SUCH_VALUE)
        elif kind.name == "decimal":
            bound = 10**writer.precision
            numbers = [value if value is None else int.from_bytes(value, "big", signed=True) for value in values]
            self.refuse(
                np.array([n is not None and abs(n) >= bound for n in numbers], bool), records, "more digits than it may"
            )
            values = [None if n is None or abs(n) >= bound else exact_decimal(writer, n) for n in numbers]
        elif kind.name == "double":
            if writer.kind == "long":
                rounded = np.array([value is not None and int(float(value)) != value for value in values], bool)
                self.refuse(rounded, records, "a number that a double rounds")
                values = [value if value is None else float(value) for value in values]
            return self.doubles(values, records)
        elif writer.kind in _WHOLE:
            return self.whole_numbers(kind, values, records, BOUNDS.get(writer.logical, _WHOLE[writer.kind]))
        elif kind.name == "binary" and writer.kind == "string":
            values = [value if value is None else value.encode() for value in values]
        elif kind.name == "string" and writer.kind == "bytes":
            texts = [value if value is None else value.decode(errors="replace") for value in values]
            cut = [text is not None and text.encode() != value for text, value in zip(texts, values, strict=True)]
            self.refuse(np.array(cut, bool), records, "Expected UTF-8")
            values = texts
        return pa.array(values, kind.arrow)


def _branch_of(value: Any, branches: list[Step]) -> int:
    """Returns the number of the writer's branch of a value; `_UNKNOWN` if several branches fit and differ."""
    numbers = [number for number, branch in enumerate(branches) if _may_be(value, branch.writer)]
    first = branches[numbers[0]]
    return numbers[0] if all(_reads_alike(first, branches[number]) for number in numbers[1:]) else _UNKNOWN


def _may_be(value: Any, writer: Node) -> bool:
    if writer.kind in ("record", "map"):
        return isinstance(value, dict) and (writer.kind == "map" or set(value) == set(writer.names))
    if type(value) is not _PYTHON_TYPES[writer.kind]:
        return False
    if writer.kind == "enum":
        return value in writer.names
    return writer.kind != "int" or -(2**31) <= value < 2**31


def _reads_alike(one: Step, other: Step) -> bool:
    """Whether both branches read a value as the same, or both refuse it."""
    if one.is_refused or other.is_refused:
        return one.is_refused and other.is_refused
    whole = one.writer.kind in _WHOLE and other.writer.kind in _WHOLE
    return one == other or (whole and one.writer.logical == other.writer.logical)


def _symbols(writer: Node, reader: Node) -> dict[str, str]:
    """Maps each symbol of the writer to one of the reader; an empty text if the reader has none."""
    return {name: name if name in reader.names else reader.default_symbol for name in writer.names}


def default_value(node: Node, value: Any) -> Any:
    """Converts the default of a field from JSON to the value for its column."""
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        return None if value is None else default_value(others[0], value)
    if node.kind == "record":
        given = {**node.defaults, **value}
        return {name: default_value(part, given[name]) for name, part in node.fields.items()}
    if node.kind == "array":
        return [default_value(node.parts[0], item) for item in value]
    if node.kind == "map":
        return {name: default_value(node.parts[0], item) for name, item in sorted(value.items())}
    if node.kind in ("bytes", "fixed"):
        stored = str(value).encode("latin-1")
        return exact_decimal(node, int.from_bytes(stored, "big", signed=True)) if node.logical == "decimal" else stored
    if node.logical in BOUNDS:
        return value * BOUNDS[node.logical][0]
    return float(value) if node.kind in ("float", "double") else value


def exact_decimal(node: Node, number: int) -> Decimal:
    """Converts an unscaled number to the decimal of its schema's scale."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -node.scale))
