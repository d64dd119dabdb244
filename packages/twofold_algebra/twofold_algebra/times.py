"""Derives event times in a table's function: windows, days, sessions, and distances in time of joined rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from twofold_algebra.dependencies import either, is_of, several
from twofold_algebra.keys import is_time_window
from twofold_algebra.relations import (
    Aggregate,
    Call,
    Column,
    Expr,
    Filter,
    Group,
    Join,
    Literal,
    Named,
    Project,
    Relation,
    field_of,
    relations,
)
from twofold_algebra.sql.interval_text import milliseconds_of

_TRUNCATIONS = {"hour": "1 hour", "day": "1 day", "minute": "1 minute"}
IsEventTime = Callable[[Expr], bool]


@dataclass(frozen=True)
class Shift:
    """A time so much later than another one; `by` as it was written."""

    of: Expr
    ms: int
    by: str


@dataclass(frozen=True)
class TimeFacts:
    """The facts about times that follow from a plan.

    Attributes:
        parameters: `event_time`, `depends_within`, `closes_at`, `ends_at`, as far as they follow.
        lost: what the rows of a group are of, and the result does not have: the start of the window.
        other_time: the time that the function goes by, if it is another one than the event time of the input.
    """

    parameters: Mapping[str, str]
    lost: str = ""
    other_time: str = ""


def times_of(root: Relation, is_event_time: IsEventTime, *, never_closes: bool) -> TimeFacts:
    """Derives the times of the result's columns.

    Args:
        is_event_time: whether a value is the event time of the input that it is from.
        never_closes: its rows are never final: an input is a table, or is read twice.
    """
    made_by = root
    while isinstance(made_by, Filter | Project) and not (isinstance(made_by, Project) and made_by.windows):
        made_by = made_by.input
    if isinstance(made_by, Group) and made_by.is_plain and not several(made_by.input):
        return _of_group(root, made_by, is_event_time, never_closes=never_closes)
    if isinstance(made_by, Join) and not any(several(side) for side in made_by.below):
        return TimeFacts(_of_join(root, made_by, is_event_time, never_closes=never_closes))
    return TimeFacts({})


def window_times(column: str) -> dict[str, str]:
    """Names the columns that a result has in the place of a window: name -> field of the window."""
    return {f"{column}_start": "start", f"{column}_end": "end"}


def with_window_times(root: Relation, given: Collection[str], *, has_key: bool) -> tuple[Relation, str]:
    """Replaces the column that has the window of a group by columns of its start and end.

    It stays if the result has its start or such columns already, and if the declaration names it, or another key.

    Args:
        given: columns that the declaration names, with its key if it `has_key`.

    Returns:
        The relation, and the name of the column that was replaced; empty: there is none, or more than one.
    """
    shown = {value for group in relations(root) if isinstance(group, Group) for value in group.shown}
    windows = [column for column in root.columns if is_time_window(column.value) and column.value in shown]
    if len(windows) != 1 or root.name_of(field_of(windows[0].value, "start")):
        return root, ""
    window, times = windows[0], window_times(windows[0].name)
    if any(map(root.value, zip(times))) or window.name in given or (has_key and not times.keys() & {*given}):
        return root, ""
    split = [Named(name, field_of(window.value, part)) for name, part in times.items()]
    columns = tuple(c for column in root.columns for c in (split if column == window else [column]))
    return Project(input=root, computed=tuple(c.value for c in columns), columns=columns), window.name


def window_start(root: Relation, group: Group, window: Call) -> str | None:
    """Returns the column of the result that holds the start of a window or session, or None."""
    starts: list[Expr] = [field_of(window, "start")]
    if window.function == "session_window":
        starts += [one for one in group.computed if isinstance(one, Aggregate) and one.function == "min" and
                   one.arguments == window.arguments[:1]]  # fmt: skip
    return next((name for one in starts if (name := root.name_of(one))), None)


def _of_group(root: Relation, group: Group, is_event_time: IsEventTime, *, never_closes: bool) -> TimeFacts:
    parameters: dict[str, str] = {}
    lost = other = ""
    for one in group.by:
        value = one.value
        if isinstance(value, Call) and value.function in ("window", "session_window"):
            begins = window_start(root, group, value)
            if begins is None:
                lost = "the start of its window"
            if is_event_time(value.arguments[0]):
                parameters |= _of_window(root, group, value, begins, never_closes=never_closes)
            elif isinstance(value.arguments[0], Column):
                other = value.arguments[0].name
        elif (within := _truncated(value, is_event_time)) and (dated := root.name_of(value)):
            parameters |= {"event_time": dated, "depends_within": within}
    return TimeFacts(parameters, lost, other)


def _of_window(root: Relation, group: Group, window: Call, begins: str | None, *, never_closes: bool) -> dict[str, str]:
    length = window.arguments[1].text if len(window.arguments) > 1 and isinstance(window.arguments[1], Literal) else ""
    if not begins or not length:
        return {}
    parameters = {"event_time": begins, "depends_within": length}
    is_session = window.function == "session_window"
    last = [one for one in group.computed if isinstance(one, Aggregate) and one.function == "max" and
            one.arguments == window.arguments[:1]]  # fmt: skip
    ends = (root.name_of(*last) if is_session and last else None) or root.name_of(field_of(window, "end"))
    if ends and is_session:
        parameters["ends_at"] = ends
    elif ends and not never_closes:
        parameters["closes_at"] = ends
    return parameters


def _truncated(value: Expr, is_event_time: IsEventTime) -> str:
    """Returns the distance from an event time to the start of its day or hour; empty if the value is neither."""
    match value:
        case Call(function="date_trunc", arguments=(Literal() as unit, time)) if is_event_time(time):
            return _TRUNCATIONS.get(unit.text.lower(), "")
        case Call(function="to_date", arguments=(Call(function="from_utc_timestamp", arguments=(time, _)),)):
            return "2 days" if is_event_time(time) else ""  # no zone is further than 14 hours from UTC
        case Call(function="to_date", arguments=(time,)) if is_event_time(time):
            return "1 day"
        case Call(function="cast", arguments=(time, Literal(text="DATE"))) if is_event_time(time):
            return "1 day"
    return ""


def _of_join(root: Relation, join: Join, is_event_time: IsEventTime, *, never_closes: bool) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for left, right, least, greatest in _near(join):
        if not (is_event_time(left) and is_event_time(right)):
            continue
        # left + least <= right <= left + greatest, one of the distances being nothing.
        if least.ms == 0:
            first, last = left, greatest
        elif greatest.ms == 0:
            first, last = right, Shift(right, -least.ms, least.by)
        else:
            continue
        of_both = [time for time in either(join, left, right) if time == first or isinstance(time, Call)]
        dated = root.name_of(*of_both)
        if dated is None:
            continue
        parameters |= {"event_time": dated, "depends_within": last.by}
        closes = next((c.name for c in root.columns if c.name and _is_shifted(c, of_both, last.ms)), None)
        if closes and not never_closes:
            parameters["closes_at"] = closes
    return parameters


def _is_shifted(column: Named, times: Iterable[Expr], ms: int) -> bool:
    shift = _shift(column.value)
    return shift is not None and shift.ms == ms and shift.of in times


def _near(join: Join) -> Iterator[tuple[Expr, Expr, Shift, Shift]]:
    """Yields a left and a right time, with the least and the greatest distance of the right one from the left one."""
    least: dict[tuple[Expr, Expr], Shift] = {}
    greatest: dict[tuple[Expr, Expr], Shift] = {}
    for later, earlier in _ordered(join.conditions):
        a, b = _shift(later), _shift(earlier)
        if a is None or b is None:
            continue
        ahead, text = a.ms - b.ms, next((one.by for one in (a, b) if one.by), "0 seconds")  # a.of + ahead >= b.of
        if is_of(a.of, join.left) and is_of(b.of, join.right):
            greatest[a.of, b.of] = Shift(a.of, ahead, text)
        elif is_of(a.of, join.right) and is_of(b.of, join.left):
            least[b.of, a.of] = Shift(b.of, -ahead, text)
    for times in least:
        if times in greatest:
            yield (*times, least[times], greatest[times])


def _ordered(conditions: Iterable[Expr]) -> Iterator[tuple[Expr, Expr]]:
    """Yields pairs of values of which the first is not less than the second."""
    for one in conditions:
        match one:
            case Call(function=">=" | ">", arguments=(a, b)):
                yield a, b
            case Call(function="<=" | "<", arguments=(a, b)):
                yield b, a
            case Call(function="between", arguments=(value, low, high)):
                yield value, low
                yield high, value


def _shift(value: Expr) -> Shift | None:
    """Parses a column, or a column plus a fixed duration; None for other expressions."""
    match value:
        case Call(function="+" | "-", arguments=(time, Literal() as length)):
            ms, before = milliseconds_of(length.text), _shift(time)
            if ms is None or before is None:
                return None
            return Shift(before.of, before.ms + (ms if value.function == "+" else -ms), length.text)
        case Column() | Call(function="coalesce"):
            return Shift(value, 0, "")
    return None
