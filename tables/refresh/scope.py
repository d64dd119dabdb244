"""Touched scopes: which output rows a changed input row can have changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from twofold.infra.instants import Interval, are_datetimes, epoch_ms, epoch_ms_of
from twofold.infra.offset_ranges import joined
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.scope_expressions import scope_values_in

if TYPE_CHECKING:
    import pyarrow as pa

_AT, _BIN = "_at", "_bin"


@dataclass(frozen=True)
class Scope:
    """Output rows with these values in `recompute_by`, dated within the interval.

    Attributes:
        values: in the order of `recompute_by`; a `...` stands for any value, and one object for every NaN: engines
            group these as one, if Python takes no two of them for equal.
        interval: None: of every date.
    """

    values: tuple[Any, ...]
    interval: Interval | None

    def __post_init__(self) -> None:
        if any(isinstance(v, float) and math.isnan(v) for v in self.values):
            same = (math.nan if isinstance(v, float) and math.isnan(v) else v for v in self.values)
            object.__setattr__(self, "values", tuple(same))

    def covers(self, row: Scope) -> bool:
        """Whether it contains the scope of one row, see `scope_of_row`."""
        if any(a is not ... and a is not b and a != b for a, b in zip(self.values, row.values, strict=True)):
            return False
        if self.interval is None or row.interval is None:
            return True
        return self.interval.start <= row.interval.start < self.interval.end


def scopes_of(table: Table, source: Topic | Table, rows: pa.Table) -> list[Scope]:
    """Returns the scopes that changed rows of one input touch, merged if they overlap.

    Args:
        rows: the input's columns of the scope, as far as it has them, with `with_scope_values`, and its event time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(rows):
        return []
    names = scope_values_in(table, source, rows.column_names)
    # Arrow does not group by nested values, and Python cannot hold dates after 9999.
    kept = {f.name for f in rows.schema if not pa.types.is_nested(f.type) and are_datetimes(rows[f.name])}
    by = [c for c in names if names[c] in kept]
    within, time = table.depends_within_ms, source.event_time
    at = epoch_ms_of(rows[time]) if time else pa.nulls(len(rows), pa.int64())
    touched = pa.table({**{c: rows[names[c]] for c in by}, _AT: at})
    # Rows less than `within` apart have overlapping scopes: a bin of that width needs only its first and last row.
    bins = touched.append_column(_BIN, pc.divide(touched[_AT], max(within or 1, 1)))
    spans = bins.group_by([*by, _BIN]).aggregate([(_AT, "min"), (_AT, "max")]).to_pylist()
    return merged(
        Scope(
            tuple(span[c] if c in by else ... for c in table.recompute_by),
            None
            if within is None or span[_BIN] is None
            else Interval(span[f"{_AT}_min"], span[f"{_AT}_max"] + 1).widened(within),
        )
        for span in spans
    )


def scope_of_row(table: Table, row: Mapping[str, Any]) -> Scope:
    """Returns the scope of one row of the table, exact except for nested columns, which may have any value."""
    at = epoch_ms(row[table.event_time]) if table.event_time else None
    values = (... if isinstance(row[c], list | dict) else row[c] for c in table.recompute_by)
    return Scope(tuple(values), None if at is None else Interval(at, at + 1))


def whole(scopes: Iterable[Scope], spans: Iterable[tuple[tuple[Any, ...], int, int]]) -> list[Scope]:
    """Widens each scope to the whole of every row that it meets.

    Args:
        spans: of each row its `recompute_by` values, and where it begins and ends, epoch milliseconds.
    """
    by_values: dict[tuple[Any, ...], list[Interval]] = {}
    for values, start, end in spans:
        by_values.setdefault(Scope(values, None).values, []).append(Interval(start, end + 1))
    widened = []
    for scope in scopes:
        widened.append(scope)
        if scope.interval is None:
            continue
        rows = by_values.get(scope.values, []) if ... not in scope.values else list(chain(*by_values.values()))
        met = [r for r in rows if r.start <= scope.interval.end and r.end >= scope.interval.start]
        widened += [Scope(scope.values, r) for r in met]
    return merged(widened)


def hull(scopes: Sequence[Scope]) -> Scope | None:
    """Returns the scope of any value that spans the times of all; None if one has no interval."""
    intervals = [scope.interval for scope in scopes if scope.interval]
    if not intervals or len(intervals) < len(scopes):
        return None
    return Scope(
        tuple(... for _ in scopes[0].values), Interval(min(i.start for i in intervals), max(i.end for i in intervals))
    )


def merged(scopes: Iterable[Scope]) -> list[Scope]:
    """Merges scopes to as few as possible that cover the same rows, ordered."""
    by_values: dict[tuple[Any, ...], list[Interval | None]] = {}
    for scope in scopes:
        by_values.setdefault(scope.values, []).append(scope.interval)
    result = []
    for values, intervals in by_values.items():
        bounded = [i for i in intervals if i is not None]
        if len(bounded) < len(intervals):
            result.append(Scope(values, None))
        else:
            result += [Scope(values, interval) for interval in coalesce(bounded)]
    return sorted(result, key=lambda scope: repr(scope.values))


def of_every_date(scopes: Iterable[Scope]) -> list[Scope]:
    """Widens scopes to rows of every date."""
    return merged(Scope(scope.values, None) for scope in scopes)


def alike(scopes: Iterable[Scope]) -> list[list[Scope]]:
    """Groups scopes for separate refreshes: those with an interval, then the others by the columns that they fix.

    A refresh reads all input rows on which any of a part's scopes depends. Together, a post with all the followers of
    its author and a follower with all posts of the same author would read, and join, all posts with all followers.
    """
    parts: dict[tuple[bool, ...], list[Scope]] = {}
    for scope in scopes:
        fixed = () if scope.interval else (True, *(value is not ... for value in scope.values))
        parts.setdefault(fixed, []).append(scope)
    return [parts[fixed] for fixed in sorted(parts)]


def coalesce(intervals: Iterable[Interval]) -> list[Interval]:
    """Merges overlapping or adjacent intervals, in order."""
    return [Interval(start, end) for start, end in joined((i.start, i.end) for i in intervals)]


def everything(table: Table) -> list[Scope]:
    """Returns the scope of all rows of the table."""
    return [Scope(tuple(... for _ in table.recompute_by), None)]
