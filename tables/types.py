"""Types of columns: of record fields as declared and as Arrow, of tables as Delta keeps them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.errors import BadDeclaration

if TYPE_CHECKING:
    import pyarrow as pa

SCALARS = ("string", "boolean", "int", "long", "double", "date", "timestamp")


@dataclass(frozen=True)
class FieldType:
    """A scalar, or an array of scalars.

    Attributes:
        name: one of `SCALARS`: the type itself, or of an array's elements.
        array: a list of them; its elements are never null.
        nullable: the field may be null or absent.
    """

    name: str
    array: bool = False
    nullable: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type; timestamps are microseconds in UTC, as Delta keeps them."""
        import pyarrow as pa

        scalar = {
            "string": pa.string(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "double": pa.float64(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }[self.name]
        return pa.list_(pa.field("element", scalar, nullable=False)) if self.array else scalar


def parse_type(column: str, text: str) -> FieldType:
    """Read `int`, `string?`, `array<double>`.

    Raises:
        BadDeclaration: names the column and the nearest type.
    """
    body = text.strip()
    nullable = body.endswith("?")
    body = body.removesuffix("?")
    array = body.startswith("array<") and body.endswith(">")
    name = body[len("array<") : -1] if array else body
    if name not in SCALARS:
        near = difflib.get_close_matches(name, SCALARS, n=1)
        raise BadDeclaration(
            f"{column} has the type {text!r}; expected one of {', '.join(SCALARS)} or array<...> of one.",
            hint=f"Did you mean {near[0]!r}?" if near else "A trailing '?' allows null.",
        )
    return FieldType(name, array, nullable)


def with_nullable_parts(schema: pa.Schema) -> pa.Schema:
    """The schema, but the fields of structs may be null, as they are in Arrow where the struct itself is."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _with_nullable_parts(field.type), field.nullable) for field in schema])


def _with_nullable_parts(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = (kind.field(n) for n in range(kind.num_fields))
        return pa.struct([pa.field(f.name, _with_nullable_parts(f.type)) for f in fields])
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(pa.field(item.name, _with_nullable_parts(item.type), item.nullable))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _with_nullable_parts(kind.item_type))
    return kind
