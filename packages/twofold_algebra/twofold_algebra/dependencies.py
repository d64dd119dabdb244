"""Dependencies of rows: on which rows of inputs, and by which values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from twofold_algebra.keys import is_cut, is_equality, is_time_window, lifted, operands
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Group,
    Join,
    Limit,
    Literal,
    Lookup,
    Merged,
    Opaque,
    Optional,
    Project,
    Relation,
    Rest,
    Source,
    Union,
    Unknown,
    Windowed,
    mapped,
    member_of,
    parts,
    relations,
)
from twofold_algebra.spark_functions import ROW
from twofold_algebra.value_kinds import are_of_one_kind

ALL_ROWS = "a group of all rows"
COUNTING, PLACING = "which rows count", "which row they go to"
_CHOOSING = frozenset(
    {"any_value", "first", "first_value", "last", "last_value", "max", "max_by", "min", "min_by", "mode"}
)
"""Functions over several rows whose result is their first argument as one of the rows has it."""
Scope = Mapping[int, Expr]
"""Mention of an input -> the value of its rows by which they matter; a mention that is not there matters whole."""


def scope_of(root: Relation, value: Expr) -> Scope:
    """Returns the rows of inputs on which the rows of a relation with some value depend.

    The rows with `value = v` are those that the relation makes of, from each mention of an input, the rows of which
    the expression given for it is `v`.
    """
    match root:
        case Source():
            mentions = {part.mention for part in parts(value) if isinstance(part, Column)}
            return {root.mention: value} if mentions == {root.mention} and _is_row_value(value) else {}
        case Filter():
            return scope_of(root.input, value)
        case Project():
            if not all(_is_composed(value, window.partition) for window in root.windows):
                return {}
            return scope_of(root.input, value)
        case Group():
            return scope_of(root.input, value) if _is_composed(value, root.agreed) else {}
        case Distinct():
            return scope_of(root.input, value) if _is_composed(value, root.by) else {}
        case Join():
            return _of_join(root, value)
        case Union():
            return _of_union(root, value)
        case Lookup():
            return _of_lookup(root, value)
        case Limit() if not is_cut(root):
            return scope_of(root.input, value)
    return {}


def scope_values(root: Relation) -> list[tuple[Expr, ...]]:
    """Returns the values by which a row depends on several rows of the inputs, in order; empty if it does not.

    Each as it can stand in the result: a join's value may come from either side.
    """
    match root:
        case Filter() | Limit():
            return scope_values(root.input)
        case Lookup():
            return scope_values(root.input) or [(outer,) for _, outer, _ in _correlated(root)]
        case Project():
            windows = root.windows
            if not windows:
                return scope_values(root.input)
            return [(one,) for one in windows[0].partition if all(one in window.partition for window in windows)]
        case Group():
            return [(one,) for one in root.agreed if not is_time_window(one)]
        case Distinct():
            return [(one,) for one in root.by]
        case Join():
            return list(dict.fromkeys(either(root, a, b) for a, b in root.equal))
        case Union():
            return [(Merged(root.node, place),) for place in range(len(root.columns))]
    return []


def producer_of(root: Relation) -> Relation:
    """Returns the relation that produces the result's rows, below filters, projections and limits."""
    while isinstance(root, Filter | Project | Limit | Lookup):
        root = root.input
    return root


def several(root: Relation) -> str:
    """Describes how a row can depend on several rows of an input; empty if it does not."""
    for one in relations(root):
        match one:
            case Project() if one.windows:
                return "a window function"
            case Group():
                return "a group" if one.by else ALL_ROWS
            case Join():
                return "a join"
            case Union():
                return f"a {one.kind}"
            case Distinct():
                return "`distinct` or `dropDuplicates`"
            case Lookup():
                return "a subquery within an expression"
            case Limit() if is_cut(one):
                return f"`{one.what}`"
            case Unknown():
                return one.why
    return ""


def sources(root: Relation) -> list[Source]:
    """Returns the inputs that a relation reads, one for each mention."""
    return [one for one in relations(root) if isinstance(one, Source)]


def unknown_in(root: Relation) -> str:
    """Describes the part of the function that is not understood; empty if there is none."""
    return next((one.why for one in relations(root) if isinstance(one, Unknown)), "")


def read_twice(root: Relation) -> str:
    """Returns an input that is read more than once; empty if there is none."""
    names = [one.name for one in sources(root)]
    return next((name for name in names if names.count(name) > 1), "")


def lineage(root: Relation) -> dict[str, list[tuple[str, str]]]:
    """Maps each column to the input columns from which its value is computed, without conditions and groups."""
    parts_of = through_unions(root)
    return {
        column.name: list(dict.fromkeys((p.source, p.name) for p in parts_of(column.value) if isinstance(p, Column)))
        for column in root.columns
        if column.name
    }


def untraced(root: Relation) -> dict[str, str]:
    """Maps each column whose value is not known to be of those columns alone that `lineage` has to the reason."""
    parts_of = through_unions(root)
    found = {}
    for column in root.columns:
        reasons = [one.why for one in parts_of(column.value) if isinstance(one, Opaque) and not one.arguments]
        if column.name and reasons:
            found[column.name] = reasons[0]
    return found


def influences(root: Relation) -> dict[str, list[tuple[str, str]]]:
    """Returns the input columns that decide which rows count, and to which row of the result they go.

    Values of a column in the result need not be made of them.
    """
    parts_of = through_unions(root)
    deciding: dict[str, list[tuple[str, str]]] = {COUNTING: [], PLACING: []}
    for relation in relations(root):
        for what, values in ((COUNTING, _conditions(relation)), (PLACING, _places(relation))):
            found = (part for value in values for part in parts_of(value) if isinstance(part, Column))
            deciding[what] += [(part.source, part.name) for part in found]
    return {what: list(dict.fromkeys(columns)) for what, columns in deciding.items()}


def _conditions(relation: Relation) -> Sequence[Expr]:
    match relation:
        case Filter() if not relation.is_sort:
            return relation.conditions
        case Join():
            return [*(side for pair in relation.equal for side in pair), *relation.conditions]
    return ()


def _places(relation: Relation) -> Sequence[Expr]:
    match relation:
        case Group():
            return [one.value for one in relation.by]
        case Distinct():
            return relation.by
    return ()


def copied(root: Relation) -> dict[str, tuple[str, str]]:
    """Maps columns to the input and its column whose values they have, if it is one.

    A value that is chosen among those of several rows counts if the column also has its name: the `street` of the
    newest row is a street, while the least time of departure may be called otherwise, for it is the first.
    """
    unions = _unions(root)
    found = {column.name: set(_origins(column.value, (), unions)) for column in root.columns if column.name}
    return {
        name: (origin.source, origin.name)
        for name, origins in found.items()
        if len(origins) == 1 and (origin := origins.pop()) and (not origin.is_chosen or origin.name == name)
    }


@dataclass(frozen=True)
class _Origin:
    source: str
    name: str
    is_chosen: bool = False


def _origins(value: Expr, path: tuple[str, ...], unions: Mapping[int, Union]) -> Iterator[_Origin | None]:
    """Yields the input columns whose values a value, or a field in it, has; None: it has others."""
    match value:
        case Column() if not path:
            yield _Origin(value.source, value.name)
        case Optional():
            yield from _origins(value.value, path, unions)
        case Merged():
            yield from _of_all((values[value.place] for values in unions[value.node].values), path, unions)
        case Call("when", (*branches,)):
            otherwise = branches[-1:] if len(branches) % 2 else []
            yield from _of_all([*branches[1::2], *otherwise], path, unions)
        case Call("field", (inner, Literal() as name)):
            yield from _origins(inner, (name.text, *path), unions)
        case Call("named_struct") if path and (member := member_of(value, path[0])):
            yield from _origins(member, path[1:], unions)
        case Aggregate() | Windowed() if value.function in _CHOOSING:
            for one in _origins(value.arguments[0], path, unions):
                yield one and replace(one, is_chosen=True)
        case _:
            yield None


def _of_all(values: Iterable[Expr], path: tuple[str, ...], unions: Mapping[int, Union]) -> Iterator[_Origin | None]:
    """Yields the origins of all values but nulls."""
    for value in values:
        if not (isinstance(value, Literal) and value.sql == "NULL"):
            yield from _origins(value, path, unions)


def _unions(root: Relation) -> dict[int, Union]:
    return {one.node: one for one in relations(root) if isinstance(one, Union)}


def through_unions(root: Relation) -> Callable[[Expr], Iterator[Expr]]:
    """Returns what yields the parts of a value of a relation; a union's column has the parts of each input's value."""
    unions = _unions(root)

    def parts_of(value: Expr) -> Iterator[Expr]:
        for part in parts(value):
            yield part
            if isinstance(part, Merged):
                for values in unions[part.node].values:
                    yield from parts_of(values[part.place])

    return parts_of


def by_source(root: Relation, scope: Scope) -> dict[str, Expr]:
    """Maps each input to the value by which its rows matter, if it is the same in all mentions."""
    mentions = sources(root)
    found: dict[str, Expr] = {}
    for name in dict.fromkeys(one.name for one in mentions):
        values = {unmentioned(scope[one.mention]) if one.mention in scope else None for one in mentions
                  if one.name == name}  # fmt: skip
        value = values.pop()
        if not values and value is not None:
            found[name] = value
    return found


def is_of(value: Expr, root: Relation) -> bool:
    """Whether a value is computed from the columns of a relation, and is not constant."""
    values = {column.value for column in root.columns}
    rests = {(one.source, one.mention) for one in values if isinstance(one, Rest) and not one.nodes}

    def is_own(one: Expr) -> bool:
        if one in values or isinstance(one, Literal):
            return True
        if isinstance(one, Column):
            return (one.source, one.mention) in rests
        return isinstance(one, Call) and one.function in ROW and all(map(is_own, one.arguments))

    return is_own(value) and any(not isinstance(one, Literal | Call) for one in parts(value))


def _of_join(join: Join, value: Expr) -> Scope:
    """Returns the scope of a value in which both sides agree, or of a value of a side that is in every row.

    Values of different types that are equal are not one value: the texts `1` and `01` are both equal to 1.
    """
    equal = [pair for pair in join.equal if are_of_one_kind(pair)]
    value = mapped(value, lambda part: _simplified(join, part))
    to_right = dict(equal)
    to_left = {b: a for a, b in equal}
    if join.how == "full_outer":
        sides = {_agreed(join, a, b): (a, b) for a, b in equal}
        a, b = (mapped(value, lambda part, n=n: sides[part][n] if part in sides else None) for n in (0, 1))  # type: ignore[misc]
    elif join.how != "right_outer" and is_of(value, join.left):
        a, b = value, mapped(value, to_right.get)
    elif join.how in ("inner", "cross", "right_outer") and is_of(value, join.right):
        a, b = mapped(value, to_left.get), value
    else:
        return {}
    if join.how == "full_outer" and not (is_of(a, join.left) and is_of(b, join.right)):
        return {}
    scope = scope_of(join.left, a) if is_of(a, join.left) else {}
    return {**scope, **(scope_of(join.right, b) if is_of(b, join.right) else {})}


def _of_lookup(lookup: Lookup, value: Expr) -> Scope:
    """Returns the scope of a value of the row, by which the subquery finds the rows that it reads, too.

    A subquery with a condition `inner = outer` anywhere in it reads, for a row, only the rows below the condition whose
    `inner` is this row's `outer`.
    """
    scope = dict(scope_of(lookup.input, value))
    for below, outer, inner in _correlated(lookup):
        within = mapped(value, {outer: inner}.get)
        if is_of(within, below):
            scope = {**scope_of(below, within), **scope}
    return scope


def _correlated(lookup: Lookup) -> list[tuple[Relation, Expr, Expr]]:
    """Relations in the subquery, with the value of the outer row that a value of their rows must equal."""
    conditions = [one for one in relations(lookup.query) if isinstance(one, Filter) and not one.is_sort]
    return [
        (one.input, outer, inner)
        for one in conditions
        for outer, inner in equal_values(one.conditions, lookup.input, one.input)
        if are_of_one_kind([outer, inner])
    ]


def equal_values(conditions: Iterable[Expr], left: Relation, right: Relation) -> list[tuple[Expr, Expr]]:
    """Returns pairs of values, of the left and of the right relation, that the conditions set equal."""
    pairs = []
    for one in conditions:
        for condition in operands(one):
            if is_equality(condition):
                a, b = condition.arguments
                if is_of(a, left) and is_of(b, right):
                    pairs.append((a, b))
                elif is_of(b, left) and is_of(a, right):
                    pairs.append((b, a))
    return pairs


def _simplified(join: Join, part: Expr) -> Expr | None:
    """Returns the value in which both sides agree, in place of the first of both that is not null."""
    if not (isinstance(part, Call) and part.function in ("coalesce", "ifnull", "nvl") and len(part.arguments) == 2):
        return None
    for a, b in join.equal:
        if {*part.arguments} == {*lifted(join, [a], "left"), *lifted(join, [b], "right")}:
            return _agreed(join, a, b)
    return None


def _agreed(join: Join, a: Expr, b: Expr) -> Expr:
    """Returns the value in which both sides agree, in the form that every row has."""
    if join.how == "full_outer":
        return Call("coalesce", (Optional(join.node, a), Optional(join.node, b)))
    return b if join.how == "right_outer" else a


def either(join: Join, a: Expr, b: Expr) -> tuple[Expr, ...]:
    """Returns the expressions of the value in which both sides agree, also for a row without a match."""
    sides = {"inner": (a, b), "cross": (a, b), "right_outer": (b,), "full_outer": ()}.get(join.how, (a,))
    (left,), (right,) = lifted(join, [a], "left"), lifted(join, [b], "right")
    return (*sides, Call("coalesce", (left, right)), Call("coalesce", (right, left)))


def _of_union(union: Union, value: Expr) -> Scope:
    places = [part.place for part in parts(value) if isinstance(part, Merged) and part.node == union.node]
    if not all(are_of_one_kind(own[place] for own in union.values) for place in places):
        return {}
    scope: dict[int, Expr] = {}
    for number, one in enumerate(union.inputs):
        own = union.values[number]
        within = mapped(value, lambda part, own=own: own[part.place] if _is_place(union, part) else None)  # type: ignore[misc]
        scope |= scope_of(one, within)
    return scope


def _is_place(union: Union, part: Expr) -> bool:
    return isinstance(part, Merged) and part.node == union.node


def _is_row_value(value: Expr) -> bool:
    """Whether a value is computed from one row of an input, always in the same way."""
    if isinstance(value, Call):
        return value.function in ROW and all(map(_is_row_value, value.arguments))
    return isinstance(value, Column | Literal)


def _is_composed(value: Expr, of: Sequence[Expr]) -> bool:
    """Whether a value is computed from these values alone."""
    if value in of or isinstance(value, Literal):
        return True
    return isinstance(value, Call) and value.function in ROW and all(_is_composed(one, of) for one in value.arguments)


def unmentioned(value: Expr) -> Expr:
    """Returns a value of the columns of inputs by their names alone."""
    return mapped(value, lambda part: Column(part.source, part.name) if isinstance(part, Column) else None)
