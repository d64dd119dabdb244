"""Keys of relations: values that identify rows, values that follow from them, and limits of row counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import TypeGuard

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
from twofold_algebra.spark_functions import ROW, TIME_WINDOWS
from twofold_algebra.value_kinds import is_exact, is_never_null, is_same, is_whole, kind_of

_COMPARISONS = frozenset({"=", "==", "!=", "<>", "<", ">", "<=", ">=", "like", "between"})
"""Functions that are true of values only that are all not null."""


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
            below = keys(root.input, identities, ignored)
            numbered = [one for one in root.windows if _is_number(one, root.input, below, identities)]
            return [*below, *((*one.partition, one) for one in numbered)]
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


def _is_number(
    window: Windowed, below: Relation, known: Sequence[tuple[Expr, ...]], identities: Mapping[str, Sequence[str]]
) -> bool:
    """Whether no two rows of a partition have the same number; ranks differ if their order is total."""
    if window.function not in ("rank", "dense_rank"):
        return window.function == "row_number"
    follows = determined([*window.partition, *filter(is_exact, window.order)], below, identities)
    return any(all(map(follows, key)) for key in known)


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
    required = _required(group.input)
    if all(one in required or is_never_null(one) for one in hidden):
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
    a row without a match is alone. Rows of both sides of a full join can lack a match and look alike if a key is null
    or more than the key must be equal.
    """
    found: list[tuple[Expr, ...]] = []
    of_sides = [keys(side, identities) for side in join.below]
    for base, other, outer in ((0, 1, "left_outer"), (1, 0, "right_outer")):
        if join.how not in ("inner", "cross", outer):
            continue
        sides, names = join.below, ("left", "right")
        same = {pair[other]: pair[base] for pair in join.equal if is_same(*pair)}
        for key, more in product(of_sides[base], of_sides[other]):
            follows = determined(key, sides[base], identities)
            equal = [same[one] for one in more if one in same and not follows(same[one])]
            rest = lifted(join, [one for one in more if one not in same], names[other])
            made = tuple(dict.fromkeys([*key, *equal, *rest]))
            if not found or base == 0 or len(made) < min(map(len, found)):  # the other way round only if it says more
                found.append(made)
    if join.how == "full_outer" and _is_by_equalities(join):
        agreed = [{pair[n] for pair in join.equal} for n in (0, 1)]
        if all(any({*key} <= agreed[n] for key in of_sides[n]) for n in (0, 1)):
            found.append(tuple(_either(join, *pair) for pair in join.equal))
    return found


def _is_by_equalities(join: Join) -> bool:
    """Whether rows are a pair if and only if they agree in `equal`, whose values are never null."""
    agreed = [{one, other} for one, other in join.equal]
    return all(is_equality(one) and {*one.arguments} in agreed for one in join.conditions) and all(
        is_same(*pair)
        and all(one in _required(side) or is_never_null(one) for one, side in zip(pair, join.below, strict=True))
        for pair in join.equal
    )


def _either(join: Join, one: Expr, other: Expr) -> Expr:
    """Returns the value in which both sides of a full join agree, as each of its rows has it."""
    return Call("coalesce", (Optional(join.node, one), Optional(join.node, other)))


def _keys_of_union(
    union: Union, identities: Mapping[str, Sequence[str]], ignored: Expr | None
) -> list[tuple[Expr, ...]]:
    """Returns keys made of a column that says from which relation a row is, and of a key of each."""
    of_each: list[list[tuple[Expr, ...]]] = []
    for one, own in zip(union.inputs, union.values, strict=True):
        value = own[ignored.place] if isinstance(ignored, Merged) and ignored.node == union.node else None
        inner = [()] if isinstance(value, Literal) and value.sql == "NULL" else keys(one, identities, value)
        returned = list[tuple[Expr, ...]]()
        for key in inner:
            held = [part for part in key if part in own]
            if all(map(determined(held, one, identities), key)):
                returned.append(tuple(Merged(union.node, own.index(part)) for part in held))
        of_each.append(returned)
    telling = _telling(union)
    return [
        (*(Merged(union.node, place) for place in places), *(part for key in chosen for part in key))
        for places in telling
        for chosen in product(*of_each)
    ]


def _telling(union: Union) -> list[list[int]]:
    """Returns lists of places, of which at least one differs between any two rows of different inputs."""
    places = range(len(union.columns))
    at = [[_constants(one, own[n]) for one, own in zip(union.inputs, union.values, strict=True)] for n in places]

    def differ(place: int, one: int, other: int) -> bool:
        values = [union.values[n][place] for n in (one, other)]
        is_null = [isinstance(value, Literal) and value.sql == "NULL" for value in values]
        if any(is_null):
            return any(is_never_null(value) for value in values)
        return _all_differ([at[place][one], at[place][other]])

    pairs = list(combinations(range(len(union.inputs)), 2))
    alone = [[place] for place in places if all(differ(place, *pair) for pair in pairs)]
    first = [next((place for place in places if differ(place, *pair)), None) for pair in pairs]
    together = list(dict.fromkeys(place for place in first if place is not None))
    return alone or ([] if None in first else [together])


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

    An identity of a row of an input determines its columns, a group its aggregates, a row the values that window
    functions make for it, and one side of an equality the other.

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
    equal = [pair for one in row for pair in _equal_in(one) if is_same(*pair)]
    windows = [(keys(one.input, identities), made) for one in row
               if isinstance(one, Project) and not one.is_multiplied and (made := one.windows)]  # fmt: skip
    size = -1
    while size != len(known) + len(rows):
        size = len(known) + len(rows)
        known |= {part for pair in equal if any(map(is_known, pair)) for other in pair for part in _shifted(other)}
        known |= {one for found, made in windows if any(all(map(is_known, key)) for key in found) for one in made}
        for one in row:
            match one:
                case Source(name=name, mention=mention):
                    identity = [Column(name, column, mention) for column in identities.get(name, ())]
                    rows |= {mention} if identity and all(map(is_known, identity)) else set()
                case Group(is_plain=True) if all(is_known(by.value) for by in one.by):
                    known |= {*one.computed}
    return is_known


def _shifted(value: Expr) -> list[Expr]:
    """Returns a value, and the whole number that follows from it if it is that number plus or minus a constant."""
    match value:
        case Call(function="+" | "-", arguments=(one, Literal() as by)) if is_whole(one) and is_whole(by):
            return [value, one]
    return [value]


def _equal_in(root: Relation) -> list[tuple[Expr, ...]]:
    """Returns the pairs of values that are equal in each row of it."""
    match root:
        case Join(how="inner" | "cross"):
            return list(root.equal)
        case Filter(is_sort=False):
            found = [part for condition in root.conditions for part in operands(condition)]
            return [part.arguments for part in found if is_equality(part)]
    return []


def _required(root: Relation) -> set[Expr]:
    """Returns values that conditions require not to be null in each row."""
    found = set[Expr]()
    for one in _of_the_row(root):
        if isinstance(one, Join) and one.how in ("inner", "cross", "left_semi"):
            found |= {value for pair in one.equal for value in pair}
        conditions = one.conditions if isinstance(one, Filter) and not one.is_sort else ()
        for part in (part for condition in conditions for part in operands(condition)):
            match part:
                case Call(function="in", arguments=(value, *_)) | Call(function="isnotnull", arguments=(value,)):
                    found.add(value)
                case Call(function="not", arguments=(Call(function="isnull", arguments=(value,)),)):
                    found.add(value)
                case Call(function=function, arguments=values) if function in _COMPARISONS:
                    found |= {*values}
    return found


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
