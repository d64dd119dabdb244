"""Types of columns: of record fields as declared and as Arrow, of tables as Delta keeps them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twofold.infra.errors import BadDeclaration

if TYPE_CHECKING:
    import pyarrow as pa

SCALARS = ("string", "boolean", "int", "long", "double", "date", "timestamp", "timestamp_ntz", "binary", "json")
NESTED = ("decimal(p,s)", "array<T>", "map<string,T>", "struct<name: T, ...>")
_PRECISION = 38
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:?])")


@dataclass(frozen=True, kw_only=True)
class FieldType:
    """The type of a field of a record.

    Attributes:
        name: one of `SCALARS`, or `decimal`, `array`, `map` or `struct`.
        nullable: the field may be null or absent.
        element: of an array its elements' type, of a map its values'.
        fields: of a struct the names and types of its fields.
        precision, scale: of a decimal: how many digits it has, and how many of them are behind the point.
    """

    name: str
    nullable: bool = False
    element: FieldType | None = None
    fields: tuple[tuple[str, FieldType], ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def is_flat(self) -> bool:
        """Whether the JSON of the type has the field's name once, and no other name within it."""
        inner = self.element
        return self.name not in ("map", "struct", "json") and (inner is None or inner.is_flat)

    @property
    def text(self) -> str:
        """The type as a declaration writes it."""
        inner = self.name
        if self.name == "decimal":
            inner = f"decimal({self.precision},{self.scale})"
        elif self.name == "struct":
            inner = f"struct<{', '.join(f'{name}: {kind.text}' for name, kind in self.fields)}>"
        elif self.element is not None:
            inner = f"{self.name}<{'string,' if self.name == 'map' else ''}{self.element.text}>"
        return inner + "?" * self.nullable

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type; timestamps are microseconds, in UTC unless they have no zone, as Delta keeps them."""
        import pyarrow as pa

        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.name == "struct":
            return pa.struct([pa.field(name, kind.arrow) for name, kind in self.fields])
        if self.element is not None:
            inner = self.element
            if self.name == "map":
                return pa.map_(pa.string(), pa.field("value", inner.arrow, nullable=inner.nullable))
            return pa.list_(pa.field("element", inner.arrow, nullable=inner.nullable))
        return {
            "string": pa.string(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "double": pa.float64(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestamp_ntz": pa.timestamp("us"),
            "binary": pa.binary(),
            "json": pa.string(),
        }[self.name]


def parse_type(column: str, text: str) -> FieldType:
    """Parses a type such as `int`, `string?`, `decimal(10,2)`, `array<double>`, `struct<name: string, size: long?>?`.

    Raises:
        BadDeclaration: names the column, what was expected in its place, and the nearest type.
    """
    return _Parser(column, text).parse()


class _Parser:
    def __init__(self, column: str, text: str) -> None:
        self._column, self._text = column, text
        self._tokens = _TOKEN.findall(text) if _TOKEN.sub("", text).strip() == "" else [text.strip()]

    def parse(self) -> FieldType:
        kind = self._type(inner=False)
        if self._tokens:
            raise self._bad(f"nothing after {self._text[: self._text.rindex(self._tokens[0])].strip()!r}")
        return kind

    def _type(self, *, inner: bool) -> FieldType:
        name = self._take("a type")
        if name == "decimal":
            kind = self._decimal()
        elif name == "array":
            self._expect("<")
            kind = FieldType(name="array", element=self._type(inner=True))
            self._expect(">")
        elif name == "map":
            kind = self._map(inner=inner)
        elif name == "struct":
            kind = self._struct()
        elif name in SCALARS:
            kind = FieldType(name=name)
        else:
            near = difflib.get_close_matches(name, [*SCALARS, "decimal", "array", "map", "struct"], n=1)
            raise self._bad(f"one of {', '.join(SCALARS + NESTED)}", near)
        if self._tokens[:1] == ["?"]:
            self._tokens.pop(0)
            return replace(kind, nullable=True)
        return kind

    def _decimal(self) -> FieldType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not 1 <= precision <= _PRECISION or scale > precision:
            raise self._bad(f"a decimal of 1 to {_PRECISION} digits, and no more of them behind the point")
        return FieldType(name="decimal", precision=precision, scale=scale)

    def _map(self, *, inner: bool) -> FieldType:
        if inner:
            raise self._bad("a map as a column of its own, since Spark cannot compare one within another type")
        self._expect("<")
        self._expect("string")
        self._expect(",")
        kind = FieldType(name="map", element=self._type(inner=True))
        self._expect(">")
        return kind

    def _struct(self) -> FieldType:
        self._expect("<")
        fields: dict[str, FieldType] = {}
        while True:
            name = self._take("the name of a field")
            if not name.isidentifier() or name.lower() in (other.lower() for other in fields):
                raise self._bad(f"the name of another field in the place of {name!r}")
            self._expect(":")
            fields[name] = self._type(inner=True)
            if self._tokens[:1] != [","]:
                self._expect(">")
                return FieldType(name="struct", fields=tuple(fields.items()))
            self._tokens.pop(0)

    def _number(self) -> int:
        text = self._take("a number")
        if not text.isdigit():
            raise self._bad(f"a number in the place of {text!r}")
        return int(text)

    def _expect(self, token: str) -> None:
        came = self._take(repr(token))
        if came != token:
            raise self._bad(f"{token!r} in the place of {came!r}")

    def _take(self, expected: str) -> str:
        if not self._tokens:
            raise self._bad(f"{expected} at its end")
        return str(self._tokens.pop(0))

    def _bad(self, expected: str, near: Sequence[str] = ()) -> BadDeclaration:
        return BadDeclaration(
            f"{self._column} has the type {self._text!r}; expected {expected}.",
            hint=f"Did you mean {near[0]!r}?" if near else "A trailing '?' allows null.",
        )
