"""Builds relations of the algebra from a plan or SQL text; the only place that resolves names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from twofold_algebra.dependencies import equal_values
from twofold_algebra.keys import lifted, operands
from twofold_algebra.plan_mistakes import ELSEWHERE
from twofold_algebra.refusal import PlanMistake
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Generated,
    Group,
    Join,
    Limit,
    Literal,
    Lookup,
    Merged,
    Missing,
    Named,
    Opaque,
    Optional,
    Project,
    Relation,
    Rest,
    Source,
    Union,
    Unknown,
    Windowed,
    arguments,
    field_of,
    mapped,
    parts,
)
from twofold_algebra.spark_functions import AGGREGATES, GENERATORS, ROW, TIME_WINDOWS, WINDOW
from twofold_algebra.sql.impure_functions import IMPURE
from twofold_algebra.sql.names import SPARK
from twofold_algebra.value_kinds import common_kind


class NotUnderstood(Exception):
    """A part of a relation that the algebra cannot express, in words."""


class PlanBuilder:
    """Makes relations; each node and each mention of an input has a number of its own.

    Args:
        inputs: input -> its columns; None: not known.
        kinds: input -> column -> its type, as `Column` has it, where that is known.
    """

    def __init__(
        self, inputs: Mapping[str, Sequence[str] | None], kinds: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._inputs, self._kinds = inputs, kinds or {}
        self._numbers = itertools.count(1)

    def node(self) -> int:
        """Returns the number of a new relation."""
        return next(self._numbers)

    def source(self, name: str) -> Relation:
        """Returns the rows of an input."""
        if name not in self._inputs:
            return self.refused(ELSEWHERE.mistake(name=name))
        mention, columns = self.node(), self._inputs[name]
        if columns is None:
            return Source(name=name, mention=mention, columns=(Named("", Rest(name, mention)),))
        kinds = self._kinds.get(name, {})
        named = [Named(column, Column(name, column, mention, kinds.get(column, ""))) for column in columns]
        return Source(name=name, mention=mention, columns=tuple(named))

    def unknown(self, below: Iterable[Relation], why: str, opens: Sequence[str] = ()) -> Relation:
        """Returns rows about which nothing is known; `opens`: what of them depends on the order of rows."""
        return Unknown(inputs=tuple(below), why=why, opens=tuple(opens), columns=(Named("", Rest("", self.node())),))

    def refused(self, mistake: PlanMistake) -> Relation:
        """Returns rows that come from elsewhere than the inputs, or whose columns do."""
        return Unknown(inputs=(), why=mistake.message, mistake=mistake, columns=(Named("", Rest("", self.node())),))

    def aliased(self, below: Relation, alias: str) -> Relation:
        """Gives rows an alias."""
        return replace(below, columns=tuple(replace(column, under=alias) for column in below.columns), plan_id=None)

    def filtered(self, below: Relation, conditions: Sequence[Expr], *, is_sort: bool = False) -> Relation:
        """Filters rows by the conditions, or sorts them; equalities in conditions are added to a join below."""
        if not is_sort:
            below = _knowing(below, conditions)
        return Filter(input=below, conditions=tuple(conditions), is_sort=is_sort, columns=below.columns)

    def limited(self, below: Relation, what: str, rows: int | None = None) -> Relation:
        """Returns some of the rows, so many at most."""
        return Limit(input=below, what=what, rows=rows, columns=below.columns)

    def looked_up(self, below: Relation, queries: Iterable[Relation]) -> Relation:
        """Returns the rows, for each of which subqueries find values."""
        for query in queries:
            below = Lookup(input=below, query=query, columns=below.columns)
        return below

    def projected(self, below: Relation, columns: Iterable[Named]) -> Relation:
        """Computes columns for each row; for all rows together if one is an aggregate."""
        columns = tuple(columns)
        below_parts = {part for column in below.columns for part in parts(column.value)}
        of_rows = (one for column in columns for one in _outside(column.value))
        if any(isinstance(one, Aggregate) and one not in below_parts for one in of_rows):
            return self.grouped(below, (), columns)
        return Project(input=below, computed=tuple(column.value for column in columns), columns=columns)

    def with_columns(self, below: Relation, new: Iterable[Named]) -> Relation:
        """Replaces columns of the same name, and adds the others."""
        columns = list(below.columns)
        for one in new:
            at = [n for n, column in enumerate(columns) if column.name.lower() == one.name.lower()]
            for n in at:
                columns[n] = replace(one, name=columns[n].name)
            if not at:
                columns = [*_without(columns, [one.name]), one] if below.is_open else [*columns, one]
        return self.projected(below, columns)

    def without(self, below: Relation, names: Iterable[str], values: Iterable[Expr] = ()) -> Relation:
        """Removes the columns of these names and values."""
        gone = set(values)
        kept = [column for column in _without(below.columns, names) if column.value not in gone]
        return self.projected(below, kept)

    def renamed(self, below: Relation, renames: Iterable[tuple[str, str]]) -> Relation:
        """Renames columns, one after the other."""
        columns = list(below.columns)
        for old, new in renames:
            if below.is_open and not any(column.name.lower() == old.lower() for column in columns):
                hidden = below.value([old])
                columns = [*_without(columns, [old]), *([] if hidden is None else [Named(old, hidden)])]
            columns = [replace(c, name=new) if c.name.lower() == old.lower() else c for c in columns]
        return self.projected(below, columns)

    def grouped(
        self,
        below: Relation,
        by: Sequence[Named],
        columns: Iterable[Named],
        sets: Sequence[frozenset[int]] = (),
    ) -> Relation:
        """Returns a row for each group; window functions and generators among its columns are of these rows.

        Args:
            sets: the places in `by` that each grouping goes by; empty: there is one, by all.
        """
        sets = tuple(sets) or (frozenset(range(len(by))),)
        partly = [one.value for n, one in enumerate(by) if not all(n in places for places in sets)]
        shown = {value: Opaque(self.node(), "`rollup`, `cube` or grouping sets") for value in partly}
        columns = tuple(replace(c, value=mapped(c.value, shown.get)) for c in columns)
        below_parts = {part for column in below.columns for part in parts(column.value)}
        of_groups = [
            column
            for column in columns
            if any(isinstance(one, Windowed | Generated) and one not in below_parts for one in parts(column.value))
        ]
        own = tuple(column for column in columns if column not in of_groups)
        computed = tuple(column.value for column in own)
        group = Group(
            input=below,
            by=tuple(by),
            shown=tuple(shown.get(one.value, one.value) for one in by),
            sets=sets,
            computed=computed,
            columns=own,
        )
        if not of_groups:
            return group
        return Project(input=group, computed=tuple(column.value for column in columns), columns=columns)

    def distinct(self, below: Relation, names: Sequence[str] | None = None) -> Relation:
        """Keeps one row of all that agree in these columns; None: in all columns."""
        values = [c.value for c in below.columns] if names is None else [self.column([n], [below]) for n in names]
        return Distinct(input=below, by=tuple(values), columns=below.columns)

    def joined(
        self,
        left: Relation,
        right: Relation,
        how: str,
        conditions: Iterable[Expr] = (),
        using: Sequence[str] = (),
    ) -> Relation:
        """Joins rows; `using` names columns in which they agree and of which one stays."""
        node = self.node()
        conditions = tuple(one for condition in conditions for one in operands(condition))
        shared = [(self.column([name], [left]), self.column([name], [right])) for name in using]
        join = Join(node=node, left=left, right=right, how=how, conditions=conditions, equal=(
            *shared, *equal_values(conditions, left, right)))  # fmt: skip
        merged = []
        for name, (a, b) in zip(using, shared, strict=True):
            value = {"right_outer": b, "full_outer": Call("coalesce", (Optional(node, a), Optional(node, b)))}
            merged.append(Named(name, value.get(how, a)))
        ours, theirs = (_without(side.columns, using) for side in (left, right))
        columns = [
            replace(c, value=v) for c, v in zip(ours, lifted(join, [c.value for c in ours], "left"), strict=True)
        ]
        if how not in ("left_semi", "left_anti"):
            values = lifted(join, [c.value for c in theirs], "right")
            columns += [replace(c, value=v) for c, v in zip(theirs, values, strict=True)]
        return replace(join, columns=(*merged, *columns))

    def united(self, inputs: Sequence[Relation], kind: str, *, by_name: bool = False, fills: bool = False) -> Relation:
        """Unites the rows of several relations.

        Args:
            by_name: columns of the same name are one; else those in the same place.
            fills: a column that one of them lacks is null there.
        """
        if not all(one.is_counted for one in inputs) or (by_name and any(one.is_open for one in inputs)):
            return self.unknown(inputs, f"a {kind} of columns that are not known")
        names = [column.name for column in inputs[0].columns]
        if by_name and fills:
            spelt = {name.lower(): name for one in reversed(inputs) for name in reversed(one.names)}
            names = list(dict.fromkeys(spelt[name.lower()] for one in inputs for name in one.names))
        node, values = self.node(), list[tuple[Expr, ...]]()
        for one in inputs:
            own: list[Expr | None] = [column.value for column in one.columns]
            if by_name:
                own = [one.value([name]) or (Literal("NULL", "NULL") if fills else None) for name in names]
            if len(own) != len(names) or None in own:
                return self.unknown(inputs, f"a {kind} of different columns")
            values.append(tuple(value for value in own if value is not None))
        kinds = [common_kind(each) for each in zip(*values, strict=True)]
        columns = tuple(
            Named(name, Merged(node, n, kind)) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))
        )
        return Union(node=node, inputs=tuple(inputs), values=tuple(values), kind=kind, columns=columns)

    def column(self, path: Sequence[str], below: Sequence[Relation], plan_id: int | None = None) -> Expr:
        """Resolves a column of one of these relations.

        Args:
            plan_id: the relation that the column was taken from by `frame.column`, in one of these or below it.
        """
        if plan_id is not None:
            found = [value for one in below for value in _of_plan(one, plan_id, path)]
            if len(set(found)) == 1:
                return found[0]
            if any(plan_id == one.plan_id for root in below for one in _all(root)):
                return Opaque(self.node(), f"a column {'.'.join(path)!r} that two relations have")
        values = [value for one in below if (value := one.value(path)) is not None]
        if len(set(values)) == 1:
            return values[0]
        if values or any(one.is_open for one in below):
            return Opaque(self.node(), f"a column {'.'.join(path)!r} that is not known")
        return self._hidden(path, below)

    def _hidden(self, path: Sequence[str], below: Sequence[Relation]) -> Expr:
        """Resolves a column that a projection left out, which Spark finds for conditions and orders."""
        deeper = [one for root in below for one in root.below if isinstance(root, Filter | Project)]
        values = [value for one in deeper if (value := one.value(path)) is not None]
        if len(values) == 1:
            return values[0]
        for one in itertools.chain.from_iterable(map(_all, below)):
            if one.is_open or one.value(path) is not None or path[-1].lower() in map(str.lower, one.names):
                return Opaque(self.node(), f"a column {'.'.join(path)!r} that is not in the result")
        return Missing(".".join(path), tuple(dict.fromkeys(name for one in below for name in one.names)))

    def call(self, function: str, values: Iterable[Expr], node: int, *, is_distinct: bool = False) -> Expr:
        """Builds a call of a Spark function by the relation of that number.

        Raises:
            NotUnderstood: it may be of one row, or of several.
        """
        name, values = function.lower(), tuple(values)
        if name in AGGREGATES:
            return Aggregate(node, name, values, is_distinct=is_distinct)
        if name in GENERATORS:
            return Generated(node, name, values)
        if name in ROW or name in IMPURE or name in TIME_WINDOWS or name in WINDOW:
            return Call(name, values)
        raise NotUnderstood(f"{name}(), of which nothing is known")


def struct_of(members: Iterable[tuple[str, Expr]]) -> Expr:
    """Builds a struct of these members."""
    return Call("named_struct", tuple(one for name, value in members for one in (text(name), value)))


def text(value: str) -> Literal:
    """Builds a constant text."""
    return Literal(value, SPARK.literal(value))


def interval_of(number: str, unit: str) -> Literal:
    """Returns a constant duration."""
    return Literal(f"{number} {unit.lower()}", f"INTERVAL {SPARK.literal(number)} {unit}")


def rollup_sets(each: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Returns the places that the groupings of ROLLUP go by, the longest first."""
    return [frozenset[int]().union(*each[:n]) for n in range(len(each), -1, -1)]


def cube_sets(each: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Returns the places that the groupings of CUBE go by."""
    return [frozenset[int]().union(*some) for n in range(len(each) + 1) for some in itertools.combinations(each, n)]


def extracted(value: Expr, key: Expr) -> Expr:
    """Builds the access to a field of a struct, or to an element of an array or map."""
    if isinstance(key, Literal) and key.sql.startswith("'"):
        return field_of(value, key.text)
    return Call("get", (value, key))


def window_name(value: Expr) -> str:
    """Returns the name that Spark gives the column of a time window; empty: it is none."""
    return value.function if isinstance(value, Call) and value.function in TIME_WINDOWS else ""


def windowed(made: Expr, node: int, partition: tuple[Expr, ...], order: tuple[Expr, ...], *, is_by_rows: bool) -> Expr:
    """Builds a function over a window."""
    if isinstance(made, Aggregate | Call):
        return Windowed(node, made.function, made.arguments, partition, order, is_by_rows)
    if isinstance(made, Opaque):
        return Windowed(node, made.why, made.arguments, partition, order, is_by_rows)
    raise NotUnderstood("a window over something else than a function")


def starred(path: Sequence[str], below: Relation, builder: PlanBuilder) -> list[Named]:
    """Expands a star: all columns, those under an alias, or the fields of a struct."""
    if not path:
        return list(below.columns)
    under = [c for c in below.columns if len(path) == 1 and c.under.lower() == path[0].lower()]
    if under:
        return under
    value = builder.column(path, [below])
    if isinstance(value, Call) and value.function == "named_struct":
        names = [name.text for name in value.arguments[::2] if isinstance(name, Literal)]
        return [Named(name, one) for name, one in zip(names, value.arguments[1::2], strict=True)]
    return [Named("", Rest("", builder.node()))]


def _knowing(root: Relation, conditions: Sequence[Expr]) -> Relation:
    """Returns the joins with what conditions on their rows set equal: `FROM a, b WHERE a.x = b.x`."""
    if isinstance(root, Lookup):
        return replace(root, input=_knowing(root.input, conditions))
    if not (isinstance(root, Join) and root.how in ("inner", "cross")):
        return root
    equal = dict.fromkeys([*root.equal, *equal_values(conditions, root.left, root.right)])
    left, right = (_knowing(side, conditions) for side in root.below)
    return replace(root, left=left, right=right, equal=tuple(equal))


def _without(columns: Iterable[Named], names: Iterable[str]) -> list[Named]:
    gone = frozenset(name.lower() for name in names)
    kept = [column for column in columns if column.name.lower() not in gone or not column.name]
    return [
        replace(c, value=replace(c.value, without=c.value.without | gone)) if isinstance(c.value, Rest) else c
        for c in kept
    ]


def _outside(value: Expr) -> Iterator[Expr]:
    """Yields an expression and its parts, but not those within a window function."""
    yield value
    if not isinstance(value, Windowed):
        for one in arguments(value):
            yield from _outside(one)


def _all(root: Relation) -> Iterator[Relation]:
    yield root
    for one in root.below:
        yield from _all(one)


def _of_plan(root: Relation, plan_id: int, path: Sequence[str]) -> list[Expr]:
    """Resolves the column in the relations with that plan id, as seen in the columns of `root`."""
    if root.plan_id == plan_id:
        value = root.value(path)
        return [] if value is None else [value]
    expressions: list[Expr] = []
    for n, one in enumerate(root.below):
        values = _of_plan(one, plan_id, path)
        if isinstance(root, Join):
            values = lifted(root, values, ("left", "right")[n])
        expressions += values
    own = {column.value for column in root.columns}
    return [value for value in expressions if _base(value) in own or any(isinstance(one, Rest) for one in own)]


def _base(value: Expr) -> Expr:
    """Returns the struct of which the value is a field, or the value itself."""
    while isinstance(value, Call) and value.function == "field":
        value = value.arguments[0]
    return value
