"""Keys of relations: values that identify rows, values that follow from them, and limits of row counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TypeGuard

from tables.algebra.relations import (
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
    Optional,
    Project,
    Relation,
    Source,
    Union,
    Windowed,
    field_of,
    parts,
    relations,
)
from tables.algebra.spark_functions import ROW, TIME_WINDOWS


def is_cut(limit: Limit) -> bool:
    """Whether it may leave out rows."""
    if limit.what != "limit" or limit.rows is None:
        return True
    most = most_rows(limit.input)
    return most is None or most > limit.rows


def most_rows(root: Relation) -> int | None:
    """Returns how many rows there are at most, whatever the inputs hold; None: not known."""
    match root:
        case Group(by=()):
            return len(root.sets)
        case Limit(rows=int() as rows):
            below = most_rows(root.input)
            return rows if below is None else min(rows, below)
        case Filter() | Distinct() | Lookup() | Limit():
            return most_rows(root.input)
        case Project() if not root.is_multiplied:
            return most_rows(root.input)
        case Join(how="left_semi" | "left_anti"):
            return most_rows(root.left)
        case Join(how="inner" | "cross"):
            left, right = most_rows(root.left), most_rows(root.right)
            return None if left is None or right is None else left * right
    return None


def keys(
    root: Relation, identities: Mapping[str, Sequence[str]], ignored: Expr | None = None
) -> list[tuple[Expr, ...]]:
    """Returns sets of values, each of them a key of the rows; none if no key is known, an empty one for a single row.

    Args:
        identities: input -> the columns that identify a row of it.
        ignored: rows without this value count as one.
    """
    single: list[tuple[Expr, ...]] = [()] if most_rows(root) == 1 else []
    return [*_keys(root, identities, ignored), *single]


def _keys(root: Relation, identities: Mapping[str, Sequence[str]], ignored: Expr | None) -> list[tuple[Expr, ...]]:
    match root:
        case Source():
            columns = identities.get(root.name)
            return [tuple(Column(root.name, c, root.mention) for c in columns)] if columns else []
        case Filter() | Limit() | Lookup():
            return keys(root.input, identities, ignored)
        case Project() if root.is_multiplied:
            return [(*key, place) for key in keys(root.input, identities, ignored) for place in root.places]
        case Project():
            numbered = [(*one.partition, one) for one in root.windows if one.function == "row_number"]
            return [*keys(root.input, identities, ignored), *numbered]
        case Group():
            return _keys_of_group(root)
        case Distinct():
            return [root.by, *keys(root.input, identities, ignored)]
        case Join(how="left_semi" | "left_anti"):
            return keys(root.left, identities, ignored)
        case Join():
            return _keys_of_join(root, identities)
        case Union(kind="union"):
            return _keys_of_union(root, identities, ignored)
    return []


def _keys_of_group(group: Group) -> list[tuple[Expr, ...]]:
    """Returns what its rows show of `by`, with what tells apart groupings: a value can be null in each of them."""
    if group.is_plain:
        return [group.shown]
    by = tuple(one.value for one in group.by)
    if len({*group.sets}) < len(group.sets) or len({*by}) < len(by):
        return []
    hidden = [one.value for one, shown in zip(group.by, group.shown, strict=True) if one.value != shown]
    made = {part for value in group.computed for part in parts(value) if isinstance(part, Aggregate)}
    whole: list[tuple[Expr, ...]] = [
        (one,) for one in made if one.function == "grouping_id" and one.arguments in ((), by)
    ]
    each = [next((one for one in made if one.function == "grouping" and one.arguments == (v,)), None) for v in hidden]
    groupings = tuple(one for one in each if one is not None)
    if all(_is_never_null(one) for one in hidden):
        whole.append(())
    if len(groupings) == len(hidden):
        whole.append(groupings)
        # Of sets each of which holds the next one, as those of `rollup`, their size says which one it is.
        ordered = sorted(group.sets, key=len)
        if all(less <= more for less, more in pairwise(ordered)):
            whole += [(value,) for value in group.computed if Counter(operands(value, "+")) == Counter(groupings)]
    return [(*group.shown, *one) for one in whole]


def _keys_of_join(join: Join, identities: Mapping[str, Sequence[str]]) -> list[tuple[Expr, ...]]:
    """Returns a key of one side with what the key of the other side says more.

    A value of the other side's key that is one of this side, too, tells no two of its rows for one of this side apart;
    a row without a match is alone. A full join has no such key: of both sides a row with a null key can lack a match.
    """
    found: list[tuple[Expr, ...]] = []
    for base, other, outer in ((0, 1, "left_outer"), (1, 0, "right_outer")):
        if join.how not in ("inner", "cross", outer):
            continue
        sides, names = join.below, ("left", "right")
        same = {pair[other]: pair[base] for pair in join.equal if _is_same(*pair)}
        for key, more in product(keys(sides[base], identities), keys(sides[other], identities)):
            follows = determined(key, sides[base], identities)
            equal = [same[one] for one in more if one in same and not follows(same[one])]
            rest = lifted(join, [one for one in more if one not in same], names[other])
            made = tuple(dict.fromkeys([*key, *equal, *rest]))
            if not found or base == 0 or len(made) < min(map(len, found)):  # the other way round only if it says more
                found.append(made)
    return found


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
        if _all_differ([_constants(one, value) for one, value in zip(union.inputs, values, strict=True)])
        for chosen in product(*of_each)
    ]


def _constants(root: Relation, value: Expr) -> list[str | int] | None:
    """Returns the texts or whole numbers that a value is one of in all rows; None: others, too."""
    match value:
        case Literal() if kind_of(value):
            return [value.text if kind_of(value) == "string" else int(value.text)]
        case Merged():
            union = next(one for one in relations(root) if isinstance(one, Union) and one.node == value.node)
            each = [_constants(one, own[value.place]) for one, own in zip(union.inputs, union.values, strict=True)]
            return None if None in each else [one for found in each for one in found or ()]
    return None


def _all_differ(sets: Sequence[Sequence[str | int] | None]) -> bool:
    """Whether no two of these sets of constants, which are all texts or all numbers, have one in common."""
    if None in sets or len({type(one) for found in sets for one in found or ()}) > 1:
        return False
    return sum(len({*(found or ())}) for found in sets) == len({one for found in sets for one in found or ()})


_INTEGERS = frozenset({"byte", "short", "int", "long", "tinyint", "smallint", "bigint"})
_SUMS = frozenset({"sum", "max", "min"})
_TEXTS = frozenset({"||", "concat", "lower", "upper", "substr", "substring", "trim"})


def kind_of(value: Expr) -> str:
    """Returns the type of a value, with a `?` if it can be null; empty: not known."""
    match value:
        case Column() | Merged():
            return value.kind
        case Optional():
            kind = kind_of(value.value)
            return kind and f"{kind.removesuffix('?')}?"
        case Literal(sql=sql):
            return "string" if sql.startswith("'") else "int" if sql.isdecimal() else ""
        case Aggregate(function="count" | "count_if"):
            return "long"
        case Aggregate(function=function, arguments=(one, *_)) if function in _SUMS:
            kind = kind_of(one).removesuffix("?")
            return kind and f"{kind}?"
        case Windowed(function="row_number"):
            return "int"
        case Call(function="case", arguments=(Literal(text="2 False"), _, then, other)):
            return common_kind([then, other])
        case Call(function=function) if function in _TEXTS:
            return "string" + "?" * (not all(map(_is_never_null, value.arguments)))
    return ""


def common_kind(values: Sequence[Expr]) -> str:
    """Returns the type of values that all have the same one; empty: they do not, or it is not known."""
    kinds = [kind_of(one) for one in values]
    if len({kind.removesuffix("?") for kind in kinds}) != 1 or not kinds[0]:
        return ""
    return next((kind for kind in kinds if kind.endswith("?")), kinds[0])


def is_exact(value: Expr) -> bool:
    """Whether two of its values are either the same or not equal, whatever they are compared as: no fraction is."""
    kind = kind_of(value).removesuffix("?")
    return kind in _INTEGERS or kind in ("string", "date", "timestamp", "boolean") or kind.startswith("decimal")


def _is_same(one: Expr, other: Expr) -> bool:
    """Whether values that are equal in a comparison are one value: the texts `1` and `01` are both equal to 1."""
    kinds = {"long" if kind in _INTEGERS else kind for v in (one, other) if (kind := kind_of(v).removesuffix("?"))}
    return is_exact(one) and is_exact(other) and len(kinds) == 1


def _is_never_null(value: Expr) -> bool:
    kind = kind_of(value)
    return bool(kind) and not kind.endswith("?")


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
    follows = determined(values, root, identities)
    for one in key:
        if not follows(one):
            lacking.append(one)
            follows = determined([*values, *lacking], root, identities)
    return lacking


def determined(
    values: Iterable[Expr], root: Relation, identities: Mapping[str, Sequence[str]]
) -> Callable[[Expr], bool]:
    """Whether rows that agree in these values agree in another one, too.

    An identity of a row of an input determines its columns, a group its aggregates, and one side of an equality the
    other.

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

    row = list(_of_the_row(root))
    equal = [pair for one in row for pair in _equal_in(one) if _is_same(*pair)]
    size = -1
    while size != len(known) + len(rows):
        size = len(known) + len(rows)
        known |= {other for pair in equal for other in pair if any(map(is_known, pair))}
        for one in row:
            match one:
                case Source(name=name, mention=mention):
                    identity = [Column(name, column, mention) for column in identities.get(name, ())]
                    rows |= {mention} if identity and all(map(is_known, identity)) else set()
                case Group(is_plain=True) if all(is_known(by.value) for by in one.by):
                    known |= {*one.computed}
    return is_known


def _equal_in(root: Relation) -> list[tuple[Expr, ...]]:
    """Returns the pairs of values that are equal in each row of it."""
    match root:
        case Join(how="inner" | "cross"):
            return list(root.equal)
        case Filter(is_sort=False):
            found = [part for condition in root.conditions for part in operands(condition)]
            return [part.arguments for part in found if is_equality(part)]
    return []


def _of_the_row(root: Relation) -> Iterator[Relation]:
    """Yields a relation and the relations below it whose facts about a row hold for the rows of the first one.

    Conditions of a subquery on its own rows say nothing about the row for which it is asked.
    """
    for one in (root.input,) if isinstance(root, Lookup) else root.below:
        yield from _of_the_row(one)
    yield root


def operands(value: Expr, operator: str = "and") -> Iterator[Expr]:
    """Yields the values that an operator links, at any depth; for `and` the conditions that all hold if one does."""
    if isinstance(value, Call) and value.function == operator:
        for one in value.arguments:
            yield from operands(one, operator)
    else:
        yield value


def is_equality(value: Expr) -> TypeGuard[Call]:
    """Whether it compares two values for equality."""
    return isinstance(value, Call) and value.function in ("=", "==", "<=>", "equal_null")


def lifted(join: Join, values: Iterable[Expr], side: str) -> list[Expr]:
    """Returns values of a side as they are in rows of the join."""
    optional = {"left": ("right_outer", "full_outer"), "right": ("left_outer", "full_outer")}[side]
    return [Optional(join.node, value) if join.how in optional else value for value in values]


def is_time_window(value: Expr) -> bool:
    """Whether it is a window of time, or a session."""
    return isinstance(value, Call) and value.function in TIME_WINDOWS
