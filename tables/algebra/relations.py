"""The relational algebra that a table's function is read as: relations, whose columns are expressions of their inputs.

An expression is written down to the columns of the inputs, or to a value that a relation makes of several rows. Two
columns with equal expressions hold the same value. What the algebra cannot express is `Unknown`, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from infra.sql.names import SPARK
from tables.algebra.refusal import PlanMistake


@dataclass(frozen=True)
class Column:
    """A column of a row of an input; `mention` tells apart the times that a function reads the same input."""

    source: str
    name: str
    mention: int = 0


@dataclass(frozen=True)
class Literal:
    """A constant.

    Attributes:
        text: its value as text.
        sql: how Spark SQL writes it; empty: it cannot be written.
    """

    text: str
    sql: str


@dataclass(frozen=True)
class Call:
    """A function or an operator of Spark over values of one row, its name in small letters."""

    function: str
    arguments: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Aggregate:
    """A value that the group `node` makes of its rows."""

    node: int
    function: str
    arguments: tuple[Expr, ...]
    is_distinct: bool = False
    is_ordered: bool = False


@dataclass(frozen=True)
class Windowed:
    """A value that a window function (`.over(...)`) makes of its partition; `is_by_rows`: of so many rows of it."""

    node: int
    function: str
    arguments: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Expr, ...]
    is_by_rows: bool = False


@dataclass(frozen=True)
class Generated:
    """A value of one of the rows that a generator, such as `explode`, makes of one."""

    node: int
    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class Optional:
    """A value of the side of the outer join `node` that can lack a match; null without one."""

    node: int
    value: Expr


@dataclass(frozen=True)
class Merged:
    """The column of a union at this place."""

    node: int
    place: int


@dataclass(frozen=True)
class Opaque:
    """A value of which nothing is known, and why."""

    node: int
    why: str
    arguments: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Missing:
    """A name that no column below has; `columns` are those that there are."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Rest:
    """The columns of an input whose names are not known before Spark runs, those `without` left out."""

    source: str
    mention: int
    nodes: tuple[int, ...] = ()
    without: frozenset[str] = frozenset()


Expr = Column | Literal | Call | Aggregate | Windowed | Generated | Optional | Merged | Opaque | Missing | Rest


@dataclass(frozen=True)
class Named:
    """A column of a relation; without a name where Spark makes one up. `under` is the relation's alias."""

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

    @property
    def below(self) -> tuple[Relation, ...]:
        """The relations that it is made from."""
        return ()

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that it computes, conditions included."""
        return ()

    @property
    def is_open(self) -> bool:
        """Whether it has columns whose names are not known."""
        return any(not column.name for column in self.columns)

    @property
    def is_counted(self) -> bool:
        """Whether it is known how many columns it has, be it without their names."""
        return not any(isinstance(column.value, Rest) for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.name)

    def value(self, path: Sequence[str]) -> Expr | None:
        """The value of a column, or of a field in it; None: it has no such column, or it has several.

        Args:
            path: alias, name and fields, as they are written: capital letters do not count.
        """
        head, *rest = [part.lower() for part in path]
        by_alias = [c for c in self.columns if rest and c.under.lower() == head]
        if by_alias and (found := _one(by_alias, path[1])) is not None:
            return _field(found, path[2:])
        found = _one(self.columns, path[0])
        return None if found is None else _field(found, path[1:])

    def name_of(self, *wanted: Expr) -> str | None:
        """The first column that holds one of these values."""
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

    @property
    def below(self) -> tuple[Relation, ...]:
        return (self.input,)


@dataclass(frozen=True, kw_only=True)
class Filter(OfOne):
    """The rows for which conditions hold, or all rows sorted by values."""

    conditions: tuple[Expr, ...]
    is_sort: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.conditions


@dataclass(frozen=True, kw_only=True)
class Project(OfOne):
    """Columns computed of each row, and of its neighbours by window functions; generators make several rows of one."""

    computed: tuple[Expr, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.computed

    @property
    def windows(self) -> list[Windowed]:
        """The window functions that it computes itself."""
        return [part for part in self._own() if isinstance(part, Windowed)]

    @property
    def is_multiplied(self) -> bool:
        """Whether it makes several rows of one: by a generator, or by windows that overlap."""
        return self._has_overlaps or any(isinstance(part, Generated) for part in self._own())

    @property
    def places(self) -> list[Expr]:
        """The column that numbers the rows that it makes of one, where there is one: the first of `posexplode`."""
        made = [one for one in self._own() if isinstance(one, Generated) and one.function.startswith("posexplode")]
        numbered = [one for one in self.computed if isinstance(one, Generated) and one.arguments == tuple(made[:1])]
        return [] if self._has_overlaps else list(numbered[:1])

    @property
    def _has_overlaps(self) -> bool:
        return any(isinstance(one, Call) and one.function == "window" and len(one.arguments) > 2 for one in self._own())

    def _own(self) -> list[Expr]:
        """The expressions that it computes and its input does not have."""
        inner = {part for column in self.input.columns for part in parts(column.value)}
        return [part for one in self.computed for part in parts(one) if part not in inner]


@dataclass(frozen=True, kw_only=True)
class Group(OfOne):
    """One row for each group; `by` has the values that the rows of a group agree in.

    Attributes:
        is_plain: neither `rollup`, `cube`, `pivot` nor grouping sets, whose rows are of several groupings.
    """

    by: tuple[Named, ...]
    computed: tuple[Expr, ...]
    is_plain: bool = True

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*(one.value for one in self.by), *self.computed)


@dataclass(frozen=True, kw_only=True)
class Join(Relation):
    """Pairs of rows of which the conditions hold.

    Attributes:
        how: as Spark's plans write it: `inner`, `left_outer`, `right_outer`, `full_outer`, `left_semi`, `left_anti`,
            `cross`.
        equal: values, left and right, in which the rows of a pair agree.
    """

    node: int
    left: Relation
    right: Relation
    how: str
    equal: tuple[tuple[Expr, Expr], ...]
    conditions: tuple[Expr, ...]

    @property
    def below(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.conditions


@dataclass(frozen=True, kw_only=True)
class Union(Relation):
    """The rows of several relations, or what of these is in the others, or is not."""

    node: int
    inputs: tuple[Relation, ...]
    values: tuple[tuple[Expr, ...], ...]
    kind: str

    @property
    def below(self) -> tuple[Relation, ...]:
        return self.inputs


@dataclass(frozen=True, kw_only=True)
class Distinct(OfOne):
    """One row of all that agree in `by`; which one is open where they differ in other columns."""

    by: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True)
class Limit(OfOne):
    """Some of the rows, by their order or by chance: `limit`, `offset`, `tail`, `sample`."""

    what: str


@dataclass(frozen=True, kw_only=True)
class Unknown(Relation):
    """Rows that are made in a way that the algebra does not express; `why` says what it is.

    Attributes:
        mistake: they come from elsewhere than the inputs, or their columns do, which is refused.
    """

    inputs: tuple[Relation, ...]
    why: str
    mistake: PlanMistake | None = None

    @property
    def below(self) -> tuple[Relation, ...]:
        return self.inputs


def relations(root: Relation) -> Iterator[Relation]:
    """A relation and all below it, the inputs first."""
    for one in root.below:
        yield from relations(one)
    yield root


def sources(root: Relation) -> list[Source]:
    """The inputs that it reads, one for each mention."""
    return [one for one in relations(root) if isinstance(one, Source)]


def parts(value: Expr) -> Iterator[Expr]:
    """An expression and all in it."""
    yield value
    for inner in arguments(value):
        yield from parts(inner)


def arguments(value: Expr) -> tuple[Expr, ...]:
    """The expressions right under one."""
    match value:
        case Windowed():
            return (*value.arguments, *value.partition, *value.order)
        case Call() | Aggregate() | Generated() | Opaque():
            return value.arguments
        case Optional():
            return (value.value,)
    return ()


def mapped(value: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with parts replaced by what `change` gives for them; None leaves a part as it is.

    Values that a relation makes of several rows are replaced as a whole or not at all.
    """
    new = change(value)
    if new is not None:
        return new
    if isinstance(value, Call):
        return replace(value, arguments=tuple(mapped(one, change) for one in value.arguments))
    return value


def field_of(value: Expr, name: str) -> Expr:
    """A field of a struct."""
    return Call("field", (value, Literal(name, SPARK.name(name))))


def interval_of(number: str, unit: str) -> Literal:
    """Returns a constant duration."""
    return Literal(f"{number} {unit.lower()}", f"INTERVAL {SPARK.literal(number)} {unit}")


def _one(columns: Sequence[Named], name: str) -> Expr | None:
    """The value of the column of that name; None: there is none, or several that differ."""
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


def _field(value: Expr, path: Sequence[str]) -> Expr:
    for name in path:
        value = _member(value, name) or field_of(value, name)
    return value


def _member(value: Expr, name: str) -> Expr | None:
    """The value in a struct under that name, where the function makes the struct itself."""
    if not (isinstance(value, Call) and value.function == "named_struct"):
        return None
    names, values = value.arguments[::2], value.arguments[1::2]
    members = [
        one
        for called, one in zip(names, values, strict=True)
        if isinstance(called, Literal) and called.text.lower() == name.lower()
    ]
    return members[0] if len(members) == 1 else None
