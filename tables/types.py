"""Types of record fields: as declared, as Arrow, as decoded."""

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
