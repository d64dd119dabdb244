"""Rules that refuse what depends on the order of rows, unless a key proves that the order is total."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twofold_algebra.keys import is_cut, missing_of_key
from twofold_algebra.refusal import Identities, Refusal, Subject
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Distinct,
    Expr,
    Filter,
    Group,
    Limit,
    Literal,
    Project,
    Relation,
    Windowed,
    arguments,
    parts,
)
from twofold_algebra.spark_functions import EXTREMES, GREATEST, IGNORING, NEED_ORDER, ORDERED, SORTING, UNSORTED
from twofold_algebra.value_kinds import is_exact


@Refusal(
    name="drop-duplicates",
    subject=Subject.ORDER,
    shape="calls dropDuplicates() of some columns",
    why="it leaves open which {column} stays if rows differ in it",
    instead=f"Group by these columns and take {GREATEST}; or leave it out, and "
    "declare the columns as primary_key, with sequence_by.",
).found_by
def _drop_duplicates(one: Relation, identities: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Distinct):
        rest = [c.name for c in one.columns if c.name and c.value not in one.by]
        if rest and not _tell_apart(one.by, one.input, identities):
            yield {"column": rest[0]}


@Refusal(
    name="order-of-a-group",
    subject=Subject.ORDER,
    shape="calls {function}() in a group",
    why="the rows of a group come in any order, so stream and batch may disagree",
    instead="Use {replacement}.",
).found_by
def _order_of_a_group(one: Relation, identities: Identities) -> Iterator[Mapping[str, str]]:
    for value, above in aggregates_of(one):
        if value.function in ORDERED and not _is_decided(value, above, one, identities):
            yield {"function": value.function, "replacement": ORDERED[value.function]}


@Refusal(
    name="ties-over-a-window",
    subject=Subject.ORDER,
    shape="calls {function}() over a window",
    why="rows can be equal in its order, or values in their number, so stream and batch may disagree",
    instead="Use {replacement}.",
).found_by
def _ties_over_a_window(one: Relation, identities: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Project):
        for window in one.windows:
            if _is_tied(window, one.input, identities):
                yield {"function": window.function, "replacement": ORDERED[window.function]}


@Refusal(
    name="window-without-a-total-order",
    subject=Subject.ORDER,
    shape="calls {function}() without a total order",
    why="of rows that are equal in it any can be first",
    instead="So that stream and batch choose the same one, add {columns} to orderBy.",
).found_by
def _window_without_a_total_order(one: Relation, identities: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Project):
        for window in one.windows:
            values = [*_flat(window.order), *window.partition]
            is_ordered = window.function in NEED_ORDER or window.is_by_rows
            if is_ordered and (columns := _missing(values, one.input, identities, _ignored(window))):
                yield {"function": window.function, "columns": columns}


@Refusal(
    name="limit-without-a-total-order",
    subject=Subject.ORDER,
    shape="uses {function}() without a total order",
    why="it takes rows by chance",
    instead="So that stream and batch take the same rows, add {columns} to orderBy.",
).found_by
def _limit_without_a_total_order(one: Relation, identities: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Limit) and is_cut(one):
        below = one.input.input if isinstance(one.input, Limit) else one.input  # LIMIT and OFFSET
        order = _flat(below.conditions) if isinstance(below, Filter) and below.is_sort else []
        if one.what != "sample" and (columns := _missing(order, below, identities)):
            yield {"function": one.what, "columns": columns}


def aggregates_of(one: Relation) -> Iterator[tuple[Aggregate, Expr | None]]:
    """Yields the aggregates that a group computes itself, each with what it is right under."""
    if isinstance(one, Group):
        below_parts = {part for column in one.input.columns for part in parts(column.value)}
        for value, above in _with_parents(one.computed):
            if isinstance(value, Aggregate) and value not in below_parts:
                yield value, above


def _with_parents(values: Sequence[Expr], above: Expr | None = None) -> Iterator[tuple[Expr, Expr | None]]:
    for value in values:
        yield value, above
        yield from _with_parents(arguments(value), value)


def _is_decided(value: Aggregate, above: Expr | None, group: Relation, identities: Identities) -> bool:
    """Whether an aggregate that goes by order has one result, whatever the order."""
    if value.function in EXTREMES and isinstance(group, Group):
        return _is_one_extreme(value.arguments, [by.value for by in group.by], group.input, identities)
    if value.function in UNSORTED:
        is_compared = isinstance(above, Call) and above.function == "array_sort" and len(above.arguments) > 1
        return isinstance(above, Call) and above.function in SORTING and not is_compared
    if value.function == "mode":
        return value.is_ordered or _is_lowest_mode(value.arguments)
    # Equal fractions are different texts: 0.0 and -0.0.
    return value.is_ordered and is_exact(value.arguments[0])


def _is_tied(window: Windowed, below: Relation, identities: Identities) -> bool:
    """Whether a value that a window chooses by order or by number can be one of several."""
    if window.function == "mode":
        return not _is_lowest_mode(window.arguments)
    is_extreme = window.function in EXTREMES
    return is_extreme and not _is_one_extreme(window.arguments, window.partition, below, identities)


def _is_lowest_mode(arguments: Sequence[Expr]) -> bool:
    """Whether `mode` takes the lowest of values that are equally frequent."""
    return len(arguments) > 1 and getattr(arguments[1], "text", "").lower() == "true"


def _is_one_extreme(arguments: Sequence[Expr], agreed: Sequence[Expr], below: Relation, identities: Identities) -> bool:
    """Whether `max_by` or `min_by` has one result: rows without an order are left out."""
    if len(arguments) < 2:
        return False
    by = arguments[1]
    order = _flat(
        by.arguments[1:] if isinstance(by, Call) and by.function == "when" and len(by.arguments) == 2 else [by]
    )
    return all(one in order for one in _flat(arguments[:1])) or _tell_apart([*order, *agreed], below, identities)


def _ignored(window: Windowed) -> Expr | None:
    """Returns the value without which rows do not count: `last(x, ignorenulls=True)`."""
    match window.arguments:
        case (value, Literal(sql="true")) if window.function in IGNORING:
            return value
    return None


def _missing(
    values: Sequence[Expr], below: Relation, identities: Identities, ignored: Expr | None = None
) -> str | None:
    """Returns the columns that make an order total, given the values that rows agree or are ordered in; None: it is."""
    missing = missing_of_key(values, below, identities, ignored)
    if missing is None:
        return None
    return ", ".join(missing) or "the columns that identify a row, named by select(...),"


def _tell_apart(values: Sequence[Expr], below: Relation, identities: Identities) -> bool:
    """Whether rows that agree in these values are known to be the same."""
    return missing_of_key(values, below, identities) is None


def _flat(values: Sequence[Expr]) -> list[Expr]:
    """Returns the values, those of structs by themselves."""
    flat: list[Expr] = []
    for value in values:
        flat += (
            _flat(value.arguments[1::2]) if isinstance(value, Call) and value.function == "named_struct" else [value]
        )
    return flat
