"""Mistakes that what a table's function does shows, without data and without a JVM."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.sql.impure_functions import is_impure
from tables.algebra.dependencies import read_twice
from tables.algebra.keys import is_cut, is_time_window, missing_of_key
from tables.algebra.relations import (
    Aggregate,
    Call,
    Distinct,
    Expr,
    Filter,
    Group,
    Join,
    Limit,
    Literal,
    Missing,
    Project,
    Relation,
    Unknown,
    Windowed,
    arguments,
    parts,
    relations,
)
from tables.algebra.spark_functions import (
    COMPARING,
    EXTREMES,
    GREATEST,
    IGNORING,
    NEED_ORDER,
    ORDERED,
    SORTING,
    UNSORTED,
)

_PURE = "A declaration is a pure function of its parameters: take times from the events, and other data from a topic."
_MOMENT = re.compile(r"\s*(now|today|yesterday|tomorrow)(\s+\S+)?\s*", re.IGNORECASE)
"""Texts that are a time of the clock where they are cast to one, or compared with one; a zone may follow."""
_TIMES = frozenset({"cast", "try_cast", "to_timestamp", "to_date", "date", "timestamp"})
_COMPARING_TIMES = frozenset({"=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=", "between", "in"})


@dataclass(frozen=True)
class PlanMistake:
    """One mistake.

    Attributes:
        only_on_stream: it is one only where a stream keeps open rows in its state.
    """

    message: str
    hint: str
    only_on_stream: bool = False


def find_mistakes(root: Relation, identities: Mapping[str, Sequence[str]]) -> list[PlanMistake]:
    """All of them, each once, from the inputs upwards.

    Args:
        identities: input -> the columns that identify a row of it.
    """
    found = [mistake for one in relations(root) for mistake in _of_relation(one, identities)]
    if name := read_twice(root):
        found.append(
            PlanMistake(
                f"reads {name} twice, which a stream cannot: it has one source for each input.",
                "Leave closes_at out: the table then follows changes.",
                only_on_stream=True,
            )
        )
    return list(dict.fromkeys(found))


def _of_relation(one: Relation, identities: Mapping[str, Sequence[str]]) -> Iterator[PlanMistake]:
    match one:
        case Unknown() if one.is_impure:
            yield PlanMistake(f"{one.why}.", one.hint or _PURE)
        case Filter() if one.is_sort:
            yield PlanMistake(
                "orderBy has no meaning on a stream, whose rows do not end.",
                "Leave the order to those who query the table; for the first rows of a group take F.max_by, F.min_by.",
                only_on_stream=True,
            )
        case Limit():
            yield from _of_limit(one, identities)
        case Distinct():
            yield from _of_distinct(one, identities)
        case Group():
            yield from _of_group(one, identities)
        case Project():
            for window in dict.fromkeys(one.windows):
                yield from _of_window(window, one.input, identities)
    for value in one.expressions:
        for part in parts(value):
            yield from _of_value(part)
    if any(_has_collation(part) for value in _compared(one) for part in parts(value)):
        yield PlanMistake(
            "groups, joins or orders by a text with a collation, by which Spark alone takes different texts for one.",
            "Compare them in one spelling: F.lower(x).",
        )


def _compared(one: Relation) -> list[Expr]:
    """Returns the values by which it finds rows that belong together, or their order."""
    match one:
        case Group():
            made = [part for value in one.computed for part in parts(value) if isinstance(part, Aggregate)]
            return [
                *(by.value for by in one.by),
                *(x for part in made if part.function in COMPARING for x in part.arguments),
            ]
        case Distinct():
            return list(one.by)
        case Join():
            return list(one.conditions)
        case Project():
            return [value for window in one.windows for value in (*window.partition, *window.order)]
        case Filter() if one.is_sort:
            return list(one.conditions)
    return []


def _has_collation(part: Expr) -> bool:
    match part:
        case Call(function="collate", arguments=(_, Literal(text=name))):
            return name.upper() != "UTF8_BINARY"
        case Call(function="cast" | "try_cast", arguments=(_, Literal(text=kind))):
            return " COLLATE " in kind.upper()
    return False


def _of_value(part: Expr) -> Iterator[PlanMistake]:
    match part:
        case Call() if is_impure(part.function, part.arguments):
            yield PlanMistake(
                f"calls {part.function}(), which gives the stream and the batch different answers.", _PURE
            )
        case Call() if part.function in _TIMES and (moments := _moments(part.arguments[:1])):
            yield PlanMistake(f"takes {moments[0]!r} as a time, which is that of the clock.", _PURE)
        case Call() if part.function in _COMPARING_TIMES and (moments := _moments(part.arguments)):
            yield PlanMistake(
                f"compares with {moments[0]!r}, which is a time of the clock where the other side is a time.",
                f"{_PURE} A column of texts is compared by .like({moments[0]!r}).",
            )
        case Missing():
            near = difflib.get_close_matches(part.name.split(".")[-1], part.columns, n=1)
            yield PlanMistake(
                f"names the column {part.name!r}, which is not there.",
                f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(part.columns)}.",
            )


def _moments(arguments: Sequence[Expr]) -> list[str]:
    return [one.text for one in arguments if isinstance(one, Literal) and _MOMENT.fullmatch(one.text)]


def _of_distinct(one: Distinct, identities: Mapping[str, Sequence[str]]) -> Iterator[PlanMistake]:
    rest = [c for c in one.columns if c.name and c.value not in one.by]
    if rest and not _tell_apart(one.by, one.input, identities):
        yield PlanMistake(
            f"calls dropDuplicates(), which leaves open which {rest[0].name} stays where rows differ in it.",
            f"Group by these columns and take {GREATEST}; or declare the columns as primary_key, with sequence_by.",
        )


def _of_group(one: Group, identities: Mapping[str, Sequence[str]]) -> Iterator[PlanMistake]:
    if sum(_has_time_window(by.value) for by in one.by) > 1:
        yield PlanMistake(
            "groups by several time windows at once, which a stream cannot: it has one event time.",
            "Make a table of each window, and join them in a third one.",
            only_on_stream=True,
        )
    below_parts = {part for column in one.input.columns for part in parts(column.value)}
    for value, above in _with_parents(one.computed):
        if not isinstance(value, Aggregate) or value in below_parts:
            continue
        if value.is_distinct or value.function == "count_distinct":
            yield PlanMistake(
                "counts distinct values exactly, which a stream cannot.",
                'Use F.approx_count_distinct, and declare tolerances={"COLUMN": 0.05}; or leave closes_at '
                "out: the table then follows changes.",
                only_on_stream=True,
            )
        if value.function in ORDERED and not _is_decided(value, above, one, identities):
            yield PlanMistake(
                f"calls {value.function}() in a group, whose rows come in any order: stream and batch may disagree.",
                f"Use {ORDERED[value.function]}.",
            )


def _is_decided(value: Aggregate, above: Expr | None, group: Group, identities: Mapping[str, Sequence[str]]) -> bool:
    """Whether an aggregate that goes by order has one result, whatever the order."""
    if value.function in EXTREMES:
        return _is_one_extreme(value.arguments, [by.value for by in group.by], group.input, identities)
    if value.function in UNSORTED:
        is_compared = isinstance(above, Call) and above.function == "array_sort" and len(above.arguments) > 1
        return isinstance(above, Call) and above.function in SORTING and not is_compared
    if value.function == "mode":
        return len(value.arguments) > 1 and getattr(value.arguments[1], "text", "").lower() == "true"
    return value.is_ordered


def _is_one_extreme(
    arguments: Sequence[Expr], agreed: Sequence[Expr], below: Relation, identities: Mapping[str, Sequence[str]]
) -> bool:
    """Whether `max_by` or `min_by` has one result: rows without an order are left out."""
    if len(arguments) < 2:
        return False
    by = arguments[1]
    order = _flat(
        by.arguments[1:] if isinstance(by, Call) and by.function == "when" and len(by.arguments) == 2 else [by]
    )
    return all(one in order for one in _flat(arguments[:1])) or _tell_apart([*order, *agreed], below, identities)


def _of_window(window: Windowed, below: Relation, identities: Mapping[str, Sequence[str]]) -> Iterator[PlanMistake]:
    yield PlanMistake(
        "uses a window function (`.over(...)`), which a stream refuses.",
        "Use an aggregate of the group, such as F.max_by; or leave closes_at out: the table then follows changes.",
        only_on_stream=True,
    )
    if window.function in EXTREMES and not _is_one_extreme(window.arguments, window.partition, below, identities):
        yield PlanMistake(
            f"calls {window.function}() over rows that can be equal in its order: stream and batch may disagree.",
            f"Use {ORDERED[window.function]}.",
        )
    if window.function not in NEED_ORDER and not window.is_by_rows:
        return
    missing = _missing([*_flat(window.order), *window.partition], below, identities, _ignored(window))
    if missing is not None:
        yield PlanMistake(
            f"calls {window.function}() without a total order: of rows that are equal in it any can be first.",
            f"So that stream and batch choose the same one, {missing}",
        )


def _ignored(window: Windowed) -> Expr | None:
    """Returns the value without which rows do not count: `last(x, ignorenulls=True)`."""
    match window.arguments:
        case (value, Literal(sql="true")) if window.function in IGNORING:
            return value
    return None


def _of_limit(one: Limit, identities: Mapping[str, Sequence[str]]) -> Iterator[PlanMistake]:
    below = one.input.input if isinstance(one.input, Limit) else one.input  # LIMIT and OFFSET
    order = _flat(below.conditions) if isinstance(below, Filter) and below.is_sort else []
    missing = "take F.row_number() over a window instead." if one.what == "sample" else None
    if missing is None and is_cut(one):
        missing = _missing(order, below, identities)
    if missing is not None:
        yield PlanMistake(
            f"uses {one.what}() without a total order: it takes rows by chance.",
            f"So that stream and batch take the same rows, {missing}",
        )
    yield PlanMistake(
        f"uses {one.what}(), which has no meaning on a stream, whose rows do not end.",
        "Leave closes_at out: the table then follows changes.",
        only_on_stream=True,
    )


def _missing(
    values: Sequence[Expr], below: Relation, identities: Mapping[str, Sequence[str]], ignored: Expr | None = None
) -> str | None:
    """Returns the hint that makes an order total, given the values that rows agree or are ordered in; None: it is."""
    missing = missing_of_key(values, below, identities, ignored)
    if missing is None:
        return None
    if not missing:
        return "name its columns by select(...), and add those that identify a row to orderBy."
    return f"add {', '.join(missing)} to orderBy."


def _tell_apart(values: Sequence[Expr], below: Relation, identities: Mapping[str, Sequence[str]]) -> bool:
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


def _with_parents(values: Sequence[Expr], above: Expr | None = None) -> Iterator[tuple[Expr, Expr | None]]:
    """Every part of the values, with what it stands right under."""
    for value in values:
        yield value, above
        yield from _with_parents(arguments(value), value)


def _has_time_window(value: Expr) -> bool:
    return any(is_time_window(part) for part in parts(value))
