"""The relational algebra that a table's function is read as: relations, whose columns are expressions of their inputs.

An expression is written down to the columns of the inputs, or to a value that a relation makes of several rows. Two
columns with equal expressions hold the same value. A relation that the algebra cannot express is `Unknown`, which
proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any

from twofold_algebra.refusal import PlanMistake
from twofold_algebra.sql.names import SPARK


@dataclass(frozen=True)
class Expr:
    """An expression; those under it are found from its fields."""


@dataclass(frozen=True)
class Column(Expr):
    """A column of a row of an input.

    Attributes:
        mention: tells apart the times that a function reads the same input.
        kind: its type, with a `?` if it can be null; empty: not known.
    """

    source: str
    name: str
    mention: int = 0
    kind: str = field(default="", compare=False)


@dataclass(frozen=True)
class Literal(Expr):
    """A constant: its value as text, and how Spark SQL writes it; empty: it cannot be written."""

    text: str
    sql: str


@dataclass(frozen=True)
class Call(Expr):
    """A function or an operator of Spark over values of one row, its name in small letters."""

    function: str
    arguments: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Aggregate(Expr):
    """A value that the group `node` makes of its rows."""

    node: int
    function: str
    arguments: tuple[Expr, ...]
    is_distinct: bool = False
    is_ordered: bool = False


@dataclass(frozen=True)
class Windowed(Expr):
    """A value that a window function (`.over(...)`) makes of its partition; `is_by_rows`: of so many rows of it."""

    node: int
    function: str
    arguments: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Expr, ...]
    is_by_rows: bool = False


@dataclass(frozen=True)
class Generated(Expr):
    """A value of one of the rows that a generator, such as `explode`, makes of one."""

    node: int
    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Optional(Expr):
    """A value of the side of the outer join `node` that can lack a match; null without one."""

    node: int
    value: Expr


@dataclass(frozen=True)
class Merged(Expr):
    """The column of a union at this place; `kind` as of `Column`."""

    node: int
    place: int
    kind: str = field(default="", compare=False)


@dataclass(frozen=True)
class Opaque(Expr):
    """A value of which nothing is known, and why."""

    node: int
    why: str
    arguments: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Missing(Expr):
    """A name that no column below has; `columns` are those that there are."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Rest(Expr):
    """The columns of an input whose names are not known before Spark runs, those `without` left out."""

    source: str
    mention: int
    nodes: tuple[int, ...] = ()
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Named:
    """A column of a relation; without a name if Spark makes one up. `under` is the relation's alias."""

    name: str
    value: Expr
    under: str = ""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A relation.

    Attributes:
        columns: in order.
        plan_id: by which Spark's client means this relation in `frame.column`.
    """

    columns: tuple[Named, ...] = ()
    plan_id: int | None = field(default=None, compare=False)

    @cached_property
    def below(self) -> tuple[Relation, ...]:
        """The relations from which it is built."""
        return tuple(one for one in _children(self) if isinstance(one, Relation))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that it computes, conditions included."""
        return tuple(one for one in _children(self) if isinstance(one, Expr))

    @property
    def is_open(self) -> bool:
        """Whether it has columns whose names are not known."""
        return any(not column.name for column in self.columns)

    @property
    def is_counted(self) -> bool:
        """Whether the number of its columns is known, even without their names."""
        return not any(isinstance(column.value, Rest) for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.name)

    def value(self, path: Sequence[str]) -> Expr | None:
        """Returns the value of a column, or of a field in it; None if there is no such column, or several.

        Args:
            path: alias, name and fields, as they are written: capital letters do not count.
        """
        head, *rest = [part.lower() for part in path]
        by_alias = [c for c in self.columns if rest and c.under.lower() == head]
        if by_alias and (found := _one(by_alias, path[1])) is not None:
            return field_at(found, path[2:])
        found = _one(self.columns, path[0])
        return None if found is None else field_at(found, path[1:])

    def name_of(self, *wanted: Expr) -> str | None:
        """Returns the first column that has one of these values, or None."""
        named = [column.name for column in self.columns if column.name]
        hidden = [one.name for one in wanted if isinstance(one, Column)]
        return next((name for name in (*named, *hidden) if self.value([name]) in wanted), None)


@dataclass(frozen=True, kw_only=True)
class Source(Relation):
    """The rows of an input."""

    name: str
    mention: int


@dataclass(frozen=True, kw_only=True)
class OfOne(Relation):
    """A relation that is made from one other."""

    input: Relation


@dataclass(frozen=True, kw_only=True)
class Filter(OfOne):
    """The rows for which conditions hold, or all rows sorted by values."""

    conditions: tuple[Expr, ...]
    is_sort: bool = False


@dataclass(frozen=True, kw_only=True)
class Project(OfOne):
    """Columns computed of each row, and of its neighbours by window functions; generators make several rows of one."""

    computed: tuple[Expr, ...]

    @property
    def windows(self) -> list[Windowed]:
        """The window functions that it computes itself."""
        return [part for part in self._own if isinstance(part, Windowed)]

    @property
    def is_multiplied(self) -> bool:
        """Whether it makes several rows of one: by a generator, or by windows that overlap."""
        return self._has_overlaps or any(isinstance(part, Generated) for part in self._own)

    @property
    def places(self) -> list[Expr]:
        """The column that numbers the rows that it makes of one, if there is one: the first of `posexplode`."""
        made = [one for one in self._own if isinstance(one, Generated) and one.function.startswith("posexplode")]
        numbered = [one for one in self.computed if isinstance(one, Generated) and one.arguments == tuple(made[:1])]
        return [] if self._has_overlaps else list(numbered[:1])

    @property
    def _has_overlaps(self) -> bool:
        return any(isinstance(one, Call) and one.function == "window" and len(one.arguments) > 2 for one in self._own)

    @cached_property
    def _own(self) -> list[Expr]:
        """The expressions that it computes and its input does not have; found once, since much asks for them."""
        inner = {part for column in self.input.columns for part in parts(column.value)}
        return [part for one in self.computed for part in parts(one) if part not in inner]


@dataclass(frozen=True, kw_only=True)
class Group(OfOne):
    """One row for each group; `by` has the values that the rows of a group agree in.

    Attributes:
        shown: the values of `by` as its rows have them: another one where some groups do not go by it.
        sets: the places in `by` that each grouping goes by: several for `rollup`, `cube` and grouping sets.
    """

    by: tuple[Named, ...]
    shown: tuple[Expr, ...]
    sets: tuple[frozenset[int], ...]
    computed: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.shown) != len(self.by) or not self.sets:
            raise ValueError("a group whose rows do not show what it goes by")

    @property
    def is_plain(self) -> bool:
        """Whether all its rows go by all of `by`."""
        return self.sets == (frozenset(range(len(self.by))),)

    @property
    def agreed(self) -> list[Expr]:
        """The values in which the rows of each group agree, whatever else it goes by."""
        return [one.value for one, shown in zip(self.by, self.shown, strict=True) if one.value == shown]


JOINS = ("inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti", "cross")
"""Kinds of joins, as Spark's plans write them."""


@dataclass(frozen=True, kw_only=True)
class Join(Relation):
    """Pairs of rows of which the conditions hold.

    Attributes:
        how: one of `JOINS`.
        equal: values, left and right, in which the rows of a pair agree.
    """

    node: int
    left: Relation
    right: Relation
    how: str
    equal: tuple[tuple[Expr, Expr], ...]
    conditions: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if self.how not in JOINS:
            raise ValueError(f"a join {self.how!r}; there are {', '.join(JOINS)}")


@dataclass(frozen=True, kw_only=True)
class Union(Relation):
    """The rows of several relations, or what of these is in the others, or is not."""

    node: int
    inputs: tuple[Relation, ...]
    values: tuple[tuple[Expr, ...], ...]
    kind: str

    def __post_init__(self) -> None:
        if len(self.values) != len(self.inputs) or any(len(own) != len(self.columns) for own in self.values):
            raise ValueError(f"a {self.kind} of inputs with different columns")


@dataclass(frozen=True, kw_only=True)
class Distinct(OfOne):
    """One row of all that agree in `by`; which one is open if they differ in other columns."""

    by: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True)
class Limit(OfOne):
    """Some of the rows, by order or chance: `limit`, `offset`, `tail`, `sample`; `rows` at most, if that is known."""

    what: str
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Lookup(OfOne):
    """Each row once, for which a subquery within an expression finds a value among the rows of `query`.

    Expressions of `query` may name columns of the row.
    """

    query: Relation


@dataclass(frozen=True, kw_only=True)
class Unknown(Relation):
    """Rows that are made in a way that the algebra does not express; `why` says what it is.

    `mistake`: they or their columns come from elsewhere than the inputs; `opens`: what can depend on the order of rows.
    """

    inputs: tuple[Relation, ...]
    why: str
    opens: tuple[str, ...] = ()
    mistake: PlanMistake | None = None


def relations(root: Relation) -> Iterator[Relation]:
    """Yields a relation and all below it, the inputs first."""
    for one in root.below:
        yield from relations(one)
    yield root


def parts(value: Expr) -> Iterator[Expr]:
    """Yields an expression and all of its parts."""
    yield value
    for inner in arguments(value):
        yield from parts(inner)


def arguments(value: Expr) -> tuple[Expr, ...]:
    """Returns the direct parts of an expression."""
    return tuple(one for one in _children(value) if isinstance(one, Expr))


def _children(node: Expr | Relation) -> Iterator[object]:
    """Returns the expressions and relations in the fields of a node, without its columns."""
    kind: Any = type(node)
    for name in _fields(kind):
        yield from _flat(getattr(node, name))


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name != "columns")


def _flat(content: object) -> Iterator[object]:
    if isinstance(content, tuple):
        for one in content:
            yield from _flat(one)
    else:
        yield content.value if isinstance(content, Named) else content


def mapped(value: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replaces parts of an expression by the results of `change`; None leaves a part unchanged.

    Values that a relation makes of several rows are replaced as a whole or not at all.
    """
    new = change(value)
    if new is not None:
        return new
    if isinstance(value, Call):
        return replace(value, arguments=tuple(mapped(one, change) for one in value.arguments))
    return value


def field_of(value: Expr, name: str) -> Expr:
    """Builds the access to a field of a struct."""
    return Call("field", (value, Literal(name, SPARK.name(name))))


def field_at(value: Expr, path: Sequence[str]) -> Expr:
    """Returns what the names of fields lead to in a struct."""
    for name in path:
        value = member_of(value, name) or field_of(value, name)
    return value


def _one(columns: Sequence[Named], name: str) -> Expr | None:
    """Returns the value of the column of that name; None if there is none, or several that differ."""
    values = {c.value for c in columns if c.name.lower() == name.lower()}
    if not values:
        rests = [c.value for c in columns if isinstance(c.value, Rest) and name.lower() not in c.value.without]
        values = {_hidden(rest, name) for rest in rests if rest.source}
    return values.pop() if len(values) == 1 else None


def _hidden(rest: Rest, name: str) -> Expr:
    value: Expr = Column(rest.source, name, rest.mention)
    for node in rest.nodes:
        value = Optional(node, value)
    return value


def member_of(value: Expr, name: str) -> Expr | None:
    """Returns the value of that name in a struct that the function builds itself, or None."""
    if not (isinstance(value, Call) and value.function == "named_struct"):
        return None
    names, values = value.arguments[::2], value.arguments[1::2]
    members = [
        one
        for called, one in zip(names, values, strict=True)
        if isinstance(called, Literal) and called.text.lower() == name.lower()
    ]
    return members[0] if len(members) == 1 else None
