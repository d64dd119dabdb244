"""Dependencies of rows: on which rows of inputs, by which values, and what identifies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from tables.algebra.relations import (
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Group,
    Join,
    Limit,
    Literal,
    Merged,
    Optional,
    Project,
    Relation,
    Rest,
    Source,
    Union,
    Unknown,
    field_of,
    mapped,
    parts,
    relations,
    sources,
)
from tables.algebra.spark_functions import ROW, TIME_WINDOWS

ALL_ROWS = "a group of all rows"
Scope = Mapping[int, Expr]
"""Mention of an input -> the value of its rows by which they matter; a mention that is not there matters whole."""


def scope_of(root: Relation, value: Expr) -> Scope:
    """The rows of inputs on which the rows of a relation with some value depend.

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
            by = [one.value for one in root.by] if root.is_plain else []
            return scope_of(root.input, value) if _is_composed(value, by) else {}
        case Distinct():
            return scope_of(root.input, value) if _is_composed(value, root.by) else {}
        case Join():
            return _of_join(root, value)
        case Union():
            return _of_union(root, value)
    return {}


def scope_values(root: Relation) -> list[tuple[Expr, ...]]:
    """The values by which rows of a relation depend on several rows of its inputs, in order; none where it does not.

    Each as it can stand in the result: a join's value may come from either side.
    """
    match root:
        case Filter():
            return scope_values(root.input)
        case Project():
            windows = root.windows
            if not windows:
                return scope_values(root.input)
            return [(one,) for one in windows[0].partition if all(one in window.partition for window in windows)]
        case Group():
            return [(one.value,) for one in root.by if not is_time_window(one.value)] if root.is_plain else []
        case Distinct():
            return [(one,) for one in root.by]
        case Join():
            return list(dict.fromkeys(either(root, a, b) for a, b in root.equal))
        case Union():
            return [(Merged(root.node, place),) for place in range(len(root.columns))]
    return []


def several(root: Relation) -> str:
    """How a row can depend on several rows of an input, in words; empty: it does not."""
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
            case Limit():
                return f"`{one.what}`"
            case Unknown():
                return one.why
    return ""


def unknown_in(root: Relation) -> str:
    """The part of the function that is not understood, in words; empty: all is."""
    return next((one.why for one in relations(root) if isinstance(one, Unknown)), "")


def read_twice(root: Relation) -> str:
    """Returns an input that it reads more than once; empty: there is none."""
    names = [one.name for one in sources(root)]
    return next((name for name in names if names.count(name) > 1), "")


def is_multiplied(root: Relation) -> bool:
    """Whether several rows are made of one, so that what identifies that one does not identify these."""
    if isinstance(root, Group | Distinct):
        return False
    own = isinstance(root, Project) and root.is_multiplied
    return own or any(is_multiplied(one) for one in root.below)


def keys(
    root: Relation, identities: Mapping[str, Sequence[str]], ignored: Expr | None = None
) -> list[tuple[Expr, ...]]:
    """Returns sets of values, each of them a key of the rows; none if no key is known, an empty one for a single row.

    Args:
        identities: input -> the columns that identify a row of it.
        ignored: rows without this value count as one.
    """
    match root:
        case Source():
            columns = identities.get(root.name)
            return [tuple(Column(root.name, c, root.mention) for c in columns)] if columns else []
        case Filter() | Limit():
            return keys(root.input, identities, ignored)
        case Project() if root.is_multiplied:
            return [(*key, place) for key in keys(root.input, identities) for place in root.places]
        case Project():
            return keys(root.input, identities, ignored)
        case Group():
            return [tuple(one.value for one in root.by)] if root.is_plain else []
        case Distinct():
            return [root.by]
        case Join() if root.how in ("left_semi", "left_anti"):
            return keys(root.left, identities, ignored)
        case Join():
            return _keys_of_join(root, keys(root.left, identities), keys(root.right, identities))
        case Union() if root.kind == "union":
            return _keys_of_union(root, identities, ignored)
    return []


def _keys_of_join(
    join: Join, left: Sequence[tuple[Expr, ...]], right: Sequence[tuple[Expr, ...]]
) -> list[tuple[Expr, ...]]:
    # What the right row agrees in with the left one does not tell two of them apart.
    to_left = {b: a for a, b in join.equal} if join.how in ("inner", "left_outer") else {}
    return [
        (*lifted(join, a, "left"), *(to_left.get(one) or lifted(join, [one], "right")[0] for one in b))
        for a, b in product(left, right)
    ]


def _keys_of_union(
    union: Union, identities: Mapping[str, Sequence[str]], ignored: Expr | None
) -> list[tuple[Expr, ...]]:
    """Returns keys made of a column that says from which relation a row is, and of a key of each."""
    of_each: list[list[tuple[Expr, ...]]] = []
    for one, own in zip(union.inputs, union.values, strict=True):
        value = own[ignored.place] if isinstance(ignored, Merged) and ignored.node == union.node else None
        inner = [()] if isinstance(value, Literal) and value.sql == "NULL" else keys(one, identities, value)
        returned = [key for key in inner if all(part in own for part in key)]
        of_each.append([tuple(Merged(union.node, own.index(part)) for part in key) for key in returned])
    return [
        (Merged(union.node, place), *(part for key in chosen for part in key))
        for place, values in enumerate(zip(*union.values, strict=True))
        if _all_differ(values)
        for chosen in product(*of_each)
    ]


def _all_differ(values: Sequence[Expr]) -> bool:
    """Whether these are different constants: texts or whole numbers."""
    texts = [one.text for one in values if isinstance(one, Literal) and one.sql.startswith("'")]
    numbers = [int(one.text) for one in values if isinstance(one, Literal) and one.sql.isdecimal()]
    return len(values) in (len(set(texts)), len(set(numbers)))


def missing_of_key(
    values: Sequence[Expr], root: Relation, identities: Mapping[str, Sequence[str]], ignored: Expr | None = None
) -> list[str] | None:
    """Returns the columns that these values lack to tell any two different rows apart.

    Args:
        identities: input -> the columns that identify a row of it.
        ignored: rows without this value count as one.

    Returns:
        The fewest that are known by name, none where no names are known. None: they tell all rows apart.
    """
    whole = [] if root.is_open else [tuple(column.value for column in root.columns)]
    lacking = [_lacking(key, values, root, identities) for key in [*keys(root, identities, ignored), *whole]]
    if not all(lacking):
        return None
    names = [[root.name_of(one, field_of(one, "start")) for one in key] for key in lacking]
    return min(([name for name in key if name] for key in names if None not in key), key=len, default=[])


def _lacking(
    key: Sequence[Expr], values: Sequence[Expr], root: Relation, identities: Mapping[str, Sequence[str]]
) -> list[Expr]:
    """Returns the values of a key that follow neither from the given ones nor from those before them."""
    lacking: list[Expr] = []
    for one in key:
        if not determined([*values, *lacking], root, identities)(one):
            lacking.append(one)
    return lacking


def determined(
    values: Iterable[Expr], root: Relation, identities: Mapping[str, Sequence[str]]
) -> Callable[[Expr], bool]:
    """Whether rows that agree in these values agree in another one, too.

    What identifies a row of an input determines its columns, what a group is of its aggregates, and the one side of an
    equality the other.

    Args:
        identities: input -> the columns that identify a row of it.
    """
    known, rows = {*values}, set[int]()

    def is_known(value: Expr) -> bool:
        if isinstance(value, Call) and value.function in ROW:
            return value in known or all(map(is_known, value.arguments))
        if is_time_window(value):
            return not known.isdisjoint((value, field_of(value, "start"), field_of(value, "end")))
        return value in known or isinstance(value, Literal) or (isinstance(value, Column) and value.mention in rows)

    size = -1
    while size != len(known) + len(rows):
        size = len(known) + len(rows)
        for one in relations(root):
            match one:
                case Source(name=name, mention=mention):
                    identity = [Column(name, column, mention) for column in identities.get(name, ())]
                    rows |= {mention} if identity and all(map(is_known, identity)) else set()
                case Group(is_plain=True) if all(is_known(by.value) for by in one.by):
                    known |= {*one.computed}
                case Join(how="inner" | "cross"):
                    known |= {other for pair in one.equal for other in pair if any(map(is_known, pair))}
    return is_known


def lineage(root: Relation) -> dict[str, list[tuple[str, str]]]:
    """Column -> the columns of inputs that its value is made of, conditions and groups left out."""
    made_of: dict[str, list[tuple[str, str]]] = {}
    merged = {one.node: one for one in relations(root) if isinstance(one, Union)}

    def leaves(value: Expr) -> Iterable[tuple[str, str]]:
        for part in parts(value):
            if isinstance(part, Column):
                yield part.source, part.name
            elif isinstance(part, Merged):
                for values in merged[part.node].values:
                    yield from leaves(values[part.place])

    for column in root.columns:
        if column.name:
            made_of[column.name] = list(dict.fromkeys(leaves(column.value)))
    return made_of


def by_source(root: Relation, scope: Scope) -> dict[str, Expr]:
    """Input -> the value by which its rows matter, the same in all its mentions."""
    mentions = sources(root)
    found: dict[str, Expr] = {}
    for name in dict.fromkeys(one.name for one in mentions):
        values = {_unmentioned(scope[one.mention]) if one.mention in scope else None for one in mentions
                  if one.name == name}  # fmt: skip
        value = values.pop()
        if not values and value is not None:
            found[name] = value
    return found


def is_of(value: Expr, root: Relation) -> bool:
    """Whether it follows from the columns of a relation, and is no constant."""
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
    """The scope of a value in which both sides agree, or of one of a side that is in every row."""
    value = mapped(value, lambda part: _simplified(join, part))
    to_right = dict(join.equal)
    to_left = {b: a for a, b in join.equal}
    if join.how == "full_outer":
        sides = {_agreed(join, a, b): (a, b) for a, b in join.equal}
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


def _simplified(join: Join, part: Expr) -> Expr | None:
    """The value in which both sides agree, for the first of both that is not null."""
    if not (isinstance(part, Call) and part.function in ("coalesce", "ifnull", "nvl") and len(part.arguments) == 2):
        return None
    for a, b in join.equal:
        if {*part.arguments} == {*lifted(join, [a], "left"), *lifted(join, [b], "right")}:
            return _agreed(join, a, b)
    return None


def _agreed(join: Join, a: Expr, b: Expr) -> Expr:
    """The value in which both sides agree, as every row has it."""
    if join.how == "full_outer":
        return Call("coalesce", (Optional(join.node, a), Optional(join.node, b)))
    return b if join.how == "right_outer" else a


def either(join: Join, a: Expr, b: Expr) -> tuple[Expr, ...]:
    """The expression of the value in which both sides agree, also in a row without a match."""
    sides = {"inner": (a, b), "cross": (a, b), "right_outer": (b,), "full_outer": ()}.get(join.how, (a,))
    (left,), (right,) = lifted(join, [a], "left"), lifted(join, [b], "right")
    return (*sides, Call("coalesce", (left, right)), Call("coalesce", (right, left)))


def lifted(join: Join, values: Iterable[Expr], side: str) -> list[Expr]:
    """Values of a side as they are in rows of the join."""
    optional = {"left": ("right_outer", "full_outer"), "right": ("left_outer", "full_outer")}[side]
    return [Optional(join.node, value) if join.how in optional else value for value in values]


def _of_union(union: Union, value: Expr) -> Scope:
    scope: dict[int, Expr] = {}
    for number, one in enumerate(union.inputs):
        own = union.values[number]
        within = mapped(value, lambda part, own=own: own[part.place] if _is_place(union, part) else None)  # type: ignore[misc]
        scope |= scope_of(one, within)
    return scope


def _is_place(union: Union, part: Expr) -> bool:
    return isinstance(part, Merged) and part.node == union.node


def _is_row_value(value: Expr) -> bool:
    """Whether it follows from the columns of one row of an input, always in the same way."""
    if isinstance(value, Call):
        return value.function in ROW and all(map(_is_row_value, value.arguments))
    return isinstance(value, Column | Literal)


def _is_composed(value: Expr, of: Sequence[Expr]) -> bool:
    """Whether it follows from these values alone."""
    if value in of or isinstance(value, Literal):
        return True
    return isinstance(value, Call) and value.function in ROW and all(_is_composed(one, of) for one in value.arguments)


def _unmentioned(value: Expr) -> Expr:
    return mapped(value, lambda part: Column(part.source, part.name) if isinstance(part, Column) else None)


def is_time_window(value: Expr) -> bool:
    """Whether it is a window of time, or a session."""
    return isinstance(value, Call) and value.function in TIME_WINDOWS
