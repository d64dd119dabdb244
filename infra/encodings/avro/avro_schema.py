"""An Avro schema as a tree, and the types that columns of its records have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from twofold.infra.encodings.column_types import FieldType
from twofold.infra.encodings.record_format import BadSchema
from twofold.infra.encodings.schema_files import Schema
from twofold.infra.errors import BadDeclaration
from twofold.infra.instants import FIRST_US, LAST_US

# Logical types are hidden from fastavro under this prefix: it would round decimals, and make objects of instants.
_HIDDEN = "exact-"
_MAX_FIELDS = 10_000
_SCALARS = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "double",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("int", "time-millis"): "long",  # microseconds since midnight: Delta has no type for a time of day
    ("long", "time-micros"): "long",
}
_DAY_US = 86_400_000_000
BOUNDS = {
    "date": (1, -719_162, 2_932_896),
    "timestamp-millis": (1_000, FIRST_US // 1_000, LAST_US // 1_000),
    "timestamp-micros": (1, FIRST_US, LAST_US),
    "local-timestamp-millis": (1_000, FIRST_US // 1_000, LAST_US // 1_000),
    "local-timestamp-micros": (1, FIRST_US, LAST_US),
    "time-millis": (1_000, 0, _DAY_US // 1_000 - 1),
    "time-micros": (1, 0, _DAY_US - 1),
}
"""Logical type -> the factor to days or microseconds, the least number and the greatest."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A type of an Avro schema, its names resolved.

    Attributes:
        kind: a primitive type's name, `record`, `enum`, `fixed`, `array`, `map` or `union`.
        parts: of a record the types of its fields, of a union its branches, of an array or a map that of its items.
        names: of a record its fields, of an enum its symbols.
        size: of `fixed` its bytes.
        defaults, aliases: of a record, by field.
        default_symbol: of an enum, the symbol read in place of an unknown one.
    """

    kind: str
    logical: str = ""
    parts: tuple[Node, ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default_symbol: str = ""

    @property
    def fields(self) -> dict[str, Node]:
        """The types of a record's fields, by name."""
        return dict(zip(self.names, self.parts, strict=True)) if self.kind == "record" else {}

    @property
    def least_bytes(self) -> int:
        """The smallest number of bytes that a value can have."""
        if self.kind == "record":
            return sum(part.least_bytes for part in self.parts)
        return {"null": 0, "fixed": self.size, "float": 4, "double": 8}.get(self.kind, 1)


@dataclass(frozen=True)
class AvroSchema:
    """A schema as fastavro parses it, and as a tree."""

    parsed: Any
    root: Node


def parse_avro(schema: Schema) -> AvroSchema:
    """Parses the schema of a record.

    Raises:
        BadSchema: it is invalid, describes no record, contains itself, or has arrays of empty items, whose number no
            bytes limit.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        named: dict[str, Any] = {}
        for _, text in schema.imports:
            fastavro.parse_schema(_hidden(json.loads(text)), named)
        imported = dict(named)
        parsed = fastavro.parse_schema(_hidden(json.loads(schema.text)), named)
        root = _Builder(imported).node(parsed, ())
    except UnknownType as error:
        raise BadSchema(
            f"it uses the type {error.name}, which it does not define: write the definition where it is used first"
        ) from None
    except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, BadSchema):
            raise
        raise BadSchema(f"no Avro schema: {type(error).__name__} {error}") from None
    if root.kind != "record":
        raise BadSchema(f"the Avro schema of a {root.kind}: expected a record's")
    return AvroSchema(parsed, root)


def field_types(schema: Schema) -> dict[str, Callable[[], FieldType]]:
    """Maps each field of a record to a function that computes the type of its column.

    Raises:
        BadSchema: the schema cannot be read.
    """
    return {name: partial(column_type, node, name) for name, node in parse_avro(schema).root.fields.items()}


def column_type(node: Node, path: str) -> FieldType:
    """Returns the type of a column for values of the node.

    Raises:
        BadDeclaration: no type fits.
    """
    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        if len(others) == 1:
            inner = column_type(others[0], path)
            return FieldType(**{**vars(inner), "nullable": inner.nullable or len(others) < len(node.parts)})
    elif node.kind == "record" and node.names:
        return FieldType(
            name="struct", fields=tuple((n, column_type(k, f"{path}.{n}")) for n, k in node.fields.items())
        )
    elif node.kind == "array" or (node.kind == "map" and "." not in path and "[" not in path):
        return FieldType(name=node.kind, element=column_type(node.parts[0], f"{path}[]"))
    elif node.logical == "decimal":
        return FieldType(name="decimal", precision=node.precision, scale=node.scale)
    elif node.kind in _SCALARS:
        return FieldType(name=_LOGICAL.get((node.kind, node.logical), _SCALARS[node.kind]))
    what = "a union of several types" if node.kind == "union" else f"a {node.kind}"
    raise BadDeclaration(
        f"the field {path} is {what} by its Avro schema, which no column can be.",
        hint="Name the columns that the topic needs in `schema`; with unknown_fields='keep' the rest stays queryable.",
    )


def unnamed_fields(node: Node, kind: FieldType | None, path: str = "") -> Iterator[str]:
    """Yields the paths of those fields of the schema that a column's type does not name."""
    if node.kind == "union":
        for part in node.parts:
            yield from unnamed_fields(part, kind, path)
    elif node.kind == "record" and kind is not None and kind.name == "struct":
        types = dict(kind.fields)
        for name, part in node.fields.items():
            if name in types:
                yield from unnamed_fields(part, types[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}".removeprefix(".")
    elif node.kind in ("array", "map") and kind is not None and kind.element is not None:
        yield from unnamed_fields(node.parts[0], kind.element, f"{path}[]")


def _hidden(schema: Any) -> Any:
    """Hides logical types from fastavro, so that it returns each value as it is stored."""
    if isinstance(schema, Mapping):
        hidden = {name: value if name == "default" else _hidden(value) for name, value in schema.items()}
        if "logicalType" in hidden:
            hidden["logicalType"] = f"{_HIDDEN}{hidden['logicalType']}"
        return hidden
    return [_hidden(part) for part in schema] if isinstance(schema, list) else schema


class _Builder:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named, self._fields = dict(named), 0

    def node(self, schema: Any, within: tuple[str, ...]) -> Node:
        if isinstance(schema, list):
            return Node(kind="union", parts=tuple(self.node(branch, within) for branch in schema))
        if isinstance(schema, str):
            if schema in self._named:
                return self.node(self._named[schema], within)
            return Node(kind=schema)
        kind, name = schema["type"], schema.get("name", "")
        if not isinstance(kind, str):  # a type written within a type
            return self.node(kind, within)
        if kind in ("record", "error"):
            return self._record(schema, name, within)
        if kind in ("enum", "fixed"):
            self._named[name] = schema
        if kind in ("array", "map"):
            item = self.node(schema["items" if kind == "array" else "values"], within)
            if kind == "array" and item.least_bytes == 0:
                raise BadSchema("an array of items without a byte, as many as its count says")
            return Node(kind=kind, parts=(item,))
        if kind in self._named and kind not in _SCALARS:
            return self.node(self._named[kind], within)
        return Node(
            kind=kind,
            logical=str(schema.get("logicalType", "")).removeprefix(_HIDDEN),
            names=tuple(schema.get("symbols", ())),
            size=int(schema.get("size", 0)),
            precision=int(schema.get("precision", 0)),
            scale=int(schema.get("scale", 0)),
            default_symbol=str(schema.get("default", "")) if kind == "enum" else "",
        )

    def _record(self, schema: Any, name: str, within: tuple[str, ...]) -> Node:
        if name in within:
            raise BadSchema(f"the record {name} contains itself")
        self._named[name] = schema
        self._fields += len(schema["fields"])
        if self._fields > _MAX_FIELDS:
            raise BadSchema(f"more than {_MAX_FIELDS} fields")
        members = schema["fields"]
        return Node(
            kind="record",
            parts=tuple(self.node(member["type"], (*within, name)) for member in members),
            names=tuple(member["name"] for member in members),
            defaults={member["name"]: member["default"] for member in members if "default" in member},
            aliases={member["name"]: tuple(member.get("aliases", ())) for member in members},
        )
