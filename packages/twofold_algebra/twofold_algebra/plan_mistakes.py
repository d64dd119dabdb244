"""Mistakes that what a table's function does shows, without data and without a JVM: one rule for each refused shape."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from twofold_algebra.dependencies import read_twice, through_unions
from twofold_algebra.keys import is_time_window
from twofold_algebra.order_rules import aggregates_of
from twofold_algebra.refusal import RULES, Identities, PlanMistake, Refusal, Subject
from twofold_algebra.relations import (
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
    parts,
    relations,
)
from twofold_algebra.spark_functions import COMPARING, INEXACT
from twofold_algebra.sql.impure_functions import is_impure
from twofold_algebra.value_kinds import is_never_null, is_plain, kind_of

_MOMENT = re.compile(r"\s*(now|today|yesterday|tomorrow)(\s+\S+)?\s*", re.IGNORECASE)
"""Texts that are a time of the clock where they are cast to one, or compared with one; a zone may follow."""
_TIME_OF_DAY = re.compile(r"\s*(T?\d{1,2}:.*|T\d{1,2}\s*)", re.IGNORECASE | re.DOTALL)
"""Texts that are a timestamp of the day on which they are read."""
_TIMES = frozenset({"cast", "try_cast", "to_timestamp", "to_date", "date", "timestamp"})
_TIMESTAMPS = frozenset(
    {"to_timestamp", "to_timestamp_ltz", "try_to_timestamp", "timestamp", "date_trunc", "window", "session_window"}
    | {"from_utc_timestamp", "to_utc_timestamp", "unix_micros", "unix_millis", "unix_seconds"}
)
"""Functions that read a text as a timestamp."""
_OF_ONE_TYPE = frozenset({"coalesce", "nvl", "ifnull", "greatest", "least", "case", "when", "if", "-"})
"""Functions that read a text as a timestamp if another value is one."""
_COMPARING_TIMES = frozenset({"=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=", "between", "in"})
_OF_ANY_VALUE = re.compile(r"%[^a-zA-Z%]*[bhs]", re.IGNORECASE)
"""What `printf` replaces by a value of whatever type."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.IGNORECASE)
_FROM_PARTS = frozenset(
    f"{may_fail}make_timestamp{of_zone}" for may_fail in ("", "try_") for of_zone in ("", "_ltz", "_ntz")
)
_FOLLOW = "write closes_at=None: the table then follows changes."

ELSEWHERE = Refusal(
    name="reads-no-parameter",
    subject=Subject.CLOCK,
    shape="reads {name!r}, which is none of its parameters",
    why="the stream and the batch can see different versions of it",
    instead='Make it a parameter of the function, and in SQL text pass it on: sql("... FROM {{a}}", a=a).',
)
PIVOT = Refusal(
    name="pivot-without-values",
    subject=Subject.CLOCK,
    shape="calls {function}",
    why="its columns are then those of the day when the table was made",
    instead='Name the values: pivot("kind", ["a", "b"]).',
)
ASKS_FOR_ROWS = Refusal(
    name="question-to-spark",
    subject=Subject.CLOCK,
    shape="asks Spark by {function}()",
    why="a refresh calls the function over no rows, and keeps the answer",
    instead='Find the value in the query: join with rows.agg(F.max("value").alias("most")); name the values.',
)
"""Found while the plan is read, since the columns of the rows are not known."""

OPEN_PART = Refusal(
    name="order-in-what-is-not-read",
    subject=Subject.ORDER,
    shape="uses {function} in what cannot be read, {reason}",
    why="its result can depend on the order of rows or on chance, and no key that is written proves that it does not",
    instead="Write the part that cannot be read in another way, or as a table of its own.",
)


def find_mistakes(root: Relation, identities: Identities, tolerances: Collection[str] = ()) -> list[PlanMistake]:
    """Returns all mistakes, each once, from the inputs upwards.

    Args:
        tolerances: the columns of the result whose relative error is declared.
    """
    found: list[PlanMistake] = []
    for one in relations(root):
        if isinstance(one, Unknown):
            found += [one.mistake] if one.mistake else []
            opens = [name for name in one.opens if name not in INEXACT or not tolerances]
            found += (OPEN_PART.mistake(function=name, reason=one.why) for name in opens)
        found += (refusal.mistake(**place) for refusal, find in RULES.items() for place in find(one, identities))
    found += (INEXACT_RESULT.mistake(**place) for place in _inexact_results(root, tolerances))
    return list(dict.fromkeys(found))


IMPURE_FUNCTION = Refusal(
    name="impure-function",
    subject=Subject.CLOCK,
    shape="calls {function}()",
    why="it gives the stream and the batch different answers",
    instead="Take times from the columns of events, chance from the key by F.hash, other data from a topic.",
)


@IMPURE_FUNCTION.found_by
def _impure_function(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if is_impure(call.function, call.arguments):
            yield {"function": call.function}


@Refusal(
    name="sample",
    subject=Subject.CLOCK,
    shape="uses sample()",
    why="it takes rows by chance",
    instead="Take the rows with F.pmod(F.hash(KEY), F.lit(10)) == 0.",
).found_by
def _sample(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Limit) and one.what == "sample":
        yield {}


@Refusal(
    name="text-as-a-time-of-the-clock",
    subject=Subject.CLOCK,
    shape="takes {text!r} as a time",
    why="it is one of the clock",
    instead="Take the time from a column of events, or write a fixed one: F.lit('2026-01-31').",
).found_by
def _text_as_a_time(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if call.function in _TIMES and (moments := _moments(call.arguments[:1])):
            yield {"text": moments[0]}
        for value in _read_as_timestamps(call):
            if isinstance(value, Literal) and _TIME_OF_DAY.fullmatch(value.text):
                yield {"text": value.text}


@Refusal(
    name="comparison-with-a-time-of-the-clock",
    subject=Subject.CLOCK,
    shape="compares with {text!r}",
    why="if the other side is a time, that is a time of the clock",
    instead="Compare with a column of events or a fixed time, a column of texts by .like({text!r}).",
).found_by
def _comparison_with_a_time(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        compares = call.function in _COMPARING_TIMES and not any(map(_is_text, call.arguments))
        if compares and (moments := [*_moments(call.arguments), *_moments(call.arguments, _TIME_OF_DAY)]):
            yield {"text": moments[0]}


@Refusal(
    name="time-of-day-as-a-timestamp",
    subject=Subject.CLOCK,
    shape="takes texts as timestamps by `{function}`",
    why="a text with a time of day alone becomes a time of the day on which it is read",
    instead='Say their form: F.to_timestamp(x, "yyyy-MM-dd HH:mm:ss"); or begin them with a date: F.concat(F.lit('
    '"2026-01-31 "), x).',
).found_by
def _time_of_day(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if any(_is_text(value) and not _has_date(value) for value in _read_as_timestamps(call)):
            yield {"function": call.function}


def _read_as_timestamps(call: Call) -> Sequence[Expr]:
    """Returns the values of a call that are read as timestamps if they are texts."""
    match call:
        case Call(function="cast" | "try_cast", arguments=(value, Literal(text=kind))):
            is_read = kind.upper().startswith("TIMESTAMP") and "NTZ" not in kind.upper()
            return [value] if is_read else []
        case Call(function=function, arguments=values) if function in _TIMESTAMPS:
            # A format says what is read; the first argument of `date_trunc` is a unit.
            return values[1:2] if function == "date_trunc" else [] if "to_timestamp" in function and values[1:] else (
                values[:1])  # fmt: skip
        case Call(function=function, arguments=values) if function in _COMPARING_TIMES | _OF_ONE_TYPE:
            return values if any(kind_of(value).startswith("timestamp") for value in values) else []
    return []


def _is_text(value: Expr) -> bool:
    """Whether it is known to be a text that is no constant."""
    return not isinstance(value, Literal) and kind_of(value).startswith("string")


def _has_date(value: Expr) -> bool:
    """Whether a text is known to begin with a date."""
    match value:
        case Literal(text=text):
            return re.match(r"\d{4}-\d", text) is not None
        case Call(function="date_format", arguments=(_, Literal(text=form))):
            return form.startswith("y")
        case Call(function="cast", arguments=(inner, _)):
            return kind_of(inner).startswith(("date", "timestamp"))
        case Call(function="concat" | "||", arguments=(first, *_)):
            return _has_date(first)
    return False


@Refusal(
    name="text-of-a-value-of-unknown-type",
    subject=Subject.TYPES,
    shape="writes a value by {function}() that is not known to be a text, a number or a time",
    why="Java writes a binary or nested value by its place in memory",
    instead='Say what it is: F.format_string("%s", x.cast("string")).',
).found_by
def _text_of_any_value(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if call.function in ("format_string", "printf") and call.arguments:
            form, *values = call.arguments
            is_any = not isinstance(form, Literal) or _OF_ANY_VALUE.search(form.text)
            if is_any and not all(isinstance(value, Literal) or is_plain(value) for value in values):
                yield {"function": call.function}


@Refusal(
    name="limit-of-levenshtein-that-can-be-null",
    subject=Subject.TYPES,
    shape="gives levenshtein() a limit that is not known never to be null",
    why="Spark takes a null limit for 0 or for -1, by whether it compiles the query",
    instead="Write a number, or leave the limit out and compare the result with it.",
).found_by
def _limit_of_levenshtein(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if call.function == "levenshtein" and not all(map(is_never_null, call.arguments[2:])):
            yield {}


@Refusal(
    name="seconds-of-any-size",
    subject=Subject.TYPES,
    shape="gives {function}() seconds that are not known to have at most three digits before the point",
    why="Spark takes 8633 for 43.065408 seconds or for none, by whether it compiles the query",
    instead='Cast them: F.expr("try_make_timestamp(y, m, d, h, min, try_cast(s AS decimal(8,6)))").',
).found_by
def _seconds_of_any_size(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for call in _calls(one):
        if call.function in _FROM_PARTS and not all(map(_is_below_a_thousand, call.arguments[5:6])):
            yield {"function": call.function}


def _is_below_a_thousand(value: Expr) -> bool:
    match value:
        case Literal() | Call(function="second"):
            return True
        case Call(function="cast" | "try_cast", arguments=(_, Literal(text=kind))):
            pass
        case _:
            kind = kind_of(value)
    digits = _DECIMAL.match(kind)
    return digits is not None and int(digits[1]) - int(digits[2]) <= 3


@Refusal(
    name="order-on-a-stream",
    subject=Subject.STREAM,
    shape="orders rows by orderBy()",
    why="the rows of a stream do not end, so that none is the last",
    instead="Leave orderBy to those who query the table; F.min_by finds the first row of a group.",
).found_by
def _order_on_a_stream(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Filter) and one.is_sort:
        yield {}


@Refusal(
    name="limit-on-a-stream",
    subject=Subject.STREAM,
    shape="uses {function}()",
    why="the rows of a stream do not end, so that later ones can be among the first",
    instead=f"To keep it, {_FOLLOW}",
).found_by
def _limit_on_a_stream(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Limit) and one.what != "sample":
        yield {"function": one.what}


@Refusal(
    name="several-time-windows",
    subject=Subject.STREAM,
    shape="groups by several time windows at once",
    why="a stream has one event time",
    instead="Make a table of each window, and join them in a third one.",
).found_by
def _several_time_windows(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Group) and sum(any(map(is_time_window, parts(by.value))) for by in one.by) > 1:
        yield {}


@Refusal(
    name="exact-count-of-distinct-values",
    subject=Subject.STREAM,
    shape="counts distinct values exactly",
    why="Spark refuses it on a stream",
    instead=f'Use F.approx_count_distinct and declare tolerances={{{{"COLUMN": 0.05}}}}; or {_FOLLOW}',
).found_by
def _exact_count_of_distinct_values(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for value, _above in aggregates_of(one):
        if value.is_distinct or value.function == "count_distinct":
            yield {}


@Refusal(
    name="window-function",
    subject=Subject.STREAM,
    shape="uses a window function (`.over(...)`)",
    why="Spark refuses it on a stream",
    instead=f"Use an aggregate of the group, such as F.max_by; or {_FOLLOW}",
).found_by
def _window_function(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if isinstance(one, Project) and one.windows:
        yield {}


@Refusal(
    name="an-input-read-twice",
    subject=Subject.STREAM,
    shape="reads {input} twice",
    why="a stream has one source for each input",
    instead=f"To keep it, {_FOLLOW}",
).found_by
def _an_input_read_twice(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if name := read_twice(one):
        yield {"input": name}


@Refusal(
    name="comparison-by-collation",
    subject=Subject.TYPES,
    shape="groups, joins or orders by a text with a collation",
    why="by it Spark alone takes different texts for one",
    instead="Compare them in one spelling: F.lower(x).",
).found_by
def _comparison_by_collation(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    if any(_has_collation(part) for value in _compared(one) for part in parts(value)):
        yield {}


NO_SUCH_COLUMN = Refusal(
    name="no-such-column",
    subject=Subject.NAMES,
    shape="names the column {column!r}",
    why="it is not there",
    instead="{near_names}",
)


@NO_SUCH_COLUMN.found_by
def _no_such_column(one: Relation, _: Identities) -> Iterator[Mapping[str, str]]:
    for part in _parts(one):
        if isinstance(part, Missing):
            near = get_close_matches(part.name.split(".")[-1], part.columns, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(part.columns)}."
            yield {"column": part.name, "near_names": hint}


def _parts(one: Relation) -> Iterator[Expr]:
    for value in one.expressions:
        yield from parts(value)


def _calls(one: Relation) -> Iterator[Call]:
    return (part for part in _parts(one) if isinstance(part, Call))


def _moments(arguments: Sequence[Expr], form: re.Pattern[str] = _MOMENT) -> list[str]:
    return [one.text for one in arguments if isinstance(one, Literal) and form.fullmatch(one.text)]


INEXACT_RESULT = Refusal(
    name="result-that-depends-on-the-order-of-rows",
    subject=Subject.ORDER,
    shape="makes {column} by {function}()",
    why="its result depends on the order of rows or on chance by more than rounding",
    instead='Say by how much it may differ: tolerances={{"{column}": 1e-9}}, or the error of the estimate, such as '
    '0.02; float("inf") for a sketch; 0 if it is known to be exact.',
)


def _inexact_results(root: Relation, tolerances: Collection[str]) -> Iterator[Mapping[str, str]]:
    parts_of = through_unions(root)
    for column in root.columns:
        name = column.name or "COLUMN"
        if name not in tolerances and (function := next(filter(None, map(_inexact, parts_of(column.value))), None)):
            yield {"column": name, "function": function}


def _inexact(part: Expr) -> str | None:
    """Returns the function by which a value depends on the order of rows or on chance, if it does."""
    match part:
        case Aggregate(function="avg" | "mean" as function, is_distinct=True):  # sums in the order of a hash table
            return function
        case Aggregate(function=function) | Windowed(function=function) | Call(function=function):
            return function if function in INEXACT else None
    return None


def _compared(one: Relation) -> list[Expr]:
    """Returns the values by which a relation matches or orders rows."""
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
