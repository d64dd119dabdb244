"""Touched scopes: which output rows a changed input row can have changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tables.declaration import Table, Topic

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, order=True)
class Interval:
    """Half-open: event times with `start <= t < end`, epoch milliseconds."""

    start: int
    end: int

    def widened(self, by: int) -> Interval:
        return Interval(self.start - by, self.end + by)


@dataclass(frozen=True)
class Scope:
    """Output rows with these values in `recompute_by`, dated within the interval.

    Attributes:
        values: in the order of `recompute_by`; a `...` stands for any value.
        interval: None: of every date.
    """

    values: tuple[Any, ...]
    interval: Interval | None


def scopes_of(table: Table, source: Topic | Table, rows: pa.Table) -> list[Scope]:
    """Scopes that the changed `rows` of one input touch, merged where they overlap.

    Args:
        rows: the input's `recompute_by` columns, as far as it has them, and its event time.
    """
    by = [c if c in rows.column_names else None for c in table.recompute_by]
    lookback = table.lookback_ms
    columns: list[list[Any]] = [rows[c].to_pylist() if c else [...] * len(rows) for c in by]
    time = time_column(source)
    times = rows[time].to_pylist() if time and lookback is not None else [None] * len(rows)
    scopes = (
        Scope(values, _around(at, lookback) if lookback is not None else None)
        for values, at in zip(zip(*columns, strict=True) if columns else [()] * len(rows), times, strict=True)
    )
    return merged(scopes)


def merged(scopes: Iterable[Scope]) -> list[Scope]:
    """The same rows by as few scopes as possible, ordered."""
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


def coalesce(intervals: Iterable[Interval]) -> list[Interval]:
    """Overlapping or adjacent intervals joined, in order."""
    joined: list[Interval] = []
    for interval in sorted(intervals):
        if joined and interval.start <= joined[-1].end:
            joined[-1] = Interval(joined[-1].start, max(joined[-1].end, interval.end))
        else:
            joined.append(interval)
    return joined


def time_column(source: Topic | Table) -> str | None:
    return source.event_time


def epoch_ms(value: datetime | date | None) -> int | None:
    """Milliseconds since 1970, rounded down; a date is its midnight in UTC."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (value - EPOCH) // timedelta(milliseconds=1)


def from_epoch_ms(value: int) -> datetime:
    """The inverse, bounded by what a `datetime` can hold."""
    seconds = min(max(value, -62_135_596_800_000), 253_402_300_799_000)
    return EPOCH + timedelta(milliseconds=seconds)


def _around(time: datetime | date | None, lookback: int) -> Interval | None:
    at = epoch_ms(time)
    return None if at is None else Interval(at - lookback, at + lookback + 1)
