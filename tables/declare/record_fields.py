"""Sources of columns in a record, if that is not the field of the column's name: a path, the key, a header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from twofold.infra.encodings.column_types import FieldType, parse_type
from twofold.infra.errors import BadDeclaration

_DEFAULTS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "double": (int, float),
}


class Field(str):
    """The type of a column, as a declaration writes it, with where its values come from.

    Attributes:
        source: the `value` of the record, its `key`, or a `header`.
        path: of the value, the names that lead to the field; of a header its name.
        default: what stands for an absent or null field; None: nothing does.
    """

    source: Literal["value", "key", "header"]
    path: tuple[str, ...]
    default: Any

    def __new__(
        cls, kind: str, source: Literal["value", "key", "header"], path: tuple[str, ...], default: Any = None
    ) -> Field:
        field = super().__new__(cls, kind)
        field.source, field.path, field.default = source, path, default
        return field

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.source, self.path, self.default

    def __str__(self) -> str:
        return self[:]

    def __repr__(self) -> str:
        place = [repr(".".join(self.path))] if self.path else []
        default = [] if self.default is None else [f"default={self.default!r}"]
        return f"{'field' if self.source == 'value' else self.source}({', '.join([*place, repr(self[:]), *default])})"


def field(path: str, kind: str, *, default: str | float | bool | None = None) -> Field:
    """Declares a column that is a field of another name, or one within another field.

    Args:
        path: the names that lead to the field, with dots between: `actor.login`.
        kind: the type, as in `schema`.
        default: the value if the field is absent or null; the column is never null then.
    """
    return Field(kind, "value", tuple(path.split(".")), default)


def key(kind: str = "string") -> Field:
    """Declares a column with the record's key: `string` or `binary`; a trailing `?` allows records without one."""
    return Field(kind, "key", ())


def header(name: str, kind: str = "string?") -> Field:
    """Declares a column with the last header of a name: `string?` or `binary?`; without `?` it is always there."""
    return Field(kind, "header", (name,))


def require_fields(schema: Mapping[str, str]) -> None:
    """Refuses invalid fields.

    Raises:
        BadDeclaration: names the column.
    """
    for column, given in schema.items():
        if not isinstance(given, Field):
            continue
        kind = parse_type(column, given)
        if given.source != "value" and kind.name not in ("string", "binary"):
            raise BadDeclaration(f"{column}={given!r}: expected 'string' or 'binary', as bytes of the log are.")
        if "" in given.path:
            raise BadDeclaration(f"{column}={given!r}: expected names with dots between.")
        if given.default is not None:
            allowed = _DEFAULTS.get(kind.name, ())
            if (
                kind.nullable
                or not isinstance(given.default, allowed)
                or (kind.name != "boolean") is (type(given.default) is bool)
            ):
                raise BadDeclaration(
                    f"{column}={given!r}: expected a default of the type, and a type without '?'.",
                    hint="Types that can have one: " + ", ".join(_DEFAULTS) + ".",
                )
    record_types(schema)


def record_types(schema: Mapping[str, str]) -> dict[str, FieldType]:
    """Returns the types of a record's fields for a parser, nested as the columns need them.

    Raises:
        BadDeclaration: a column takes a field that another one takes apart.
    """
    tree: dict[str, Any] = {}
    for column, given in schema.items():
        kind = parse_type(column, given)
        path: tuple[str, ...] = (column,)
        if isinstance(given, Field):
            if given.source != "value":
                continue
            path = given.path
            kind = replace(kind, nullable=kind.nullable or given.default is not None)
        _put(tree, path, kind, column)
    return {name: _type(part) for name, part in tree.items()}


def _put(tree: dict[str, Any], path: tuple[str, ...], kind: FieldType, column: str) -> None:
    *above, last = path
    for name in above:
        tree = tree.setdefault(name, {})
        if isinstance(tree, FieldType):
            raise _taken_twice(path, column)
    if tree.setdefault(last, kind) is not kind:
        raise _taken_twice(path, column)


def _taken_twice(path: Iterable[str], column: str) -> BadDeclaration:
    return BadDeclaration(
        f"{column} takes the field {'.'.join(path)}, of which another column takes the whole, a part or the same.",
        hint="Declare the fields within it one by one, or the whole alone.",
    )


def _type(part: Any) -> FieldType:
    if isinstance(part, FieldType):
        return part
    fields = tuple((name, _type(inner)) for name, inner in part.items())
    return FieldType(name="struct", nullable=all(kind.nullable for _, kind in fields), fields=fields)
