"""Touched scopes: which output rows a changed input row can have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tables.declaration import Table, Topic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_MANY_VALUES = 1_000
_MANY_RANGES = 40
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
    times = rows[time_column(source)].to_pylist() if lookback is not None else [None] * len(rows)  # type: ignore[index]
    scopes = (
        Scope(values, _around(time, lookback) if lookback is not None else None)
        for values, time in zip(zip(*columns, strict=True) if columns else [()] * len(rows), times, strict=True)
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
    return sorted(result, key=repr)


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


class ScopeFilter:
    """A list of scopes as Spark predicates: coarse literal ones that prune files, and the exact one."""

    def __init__(self, spark: SparkSession, table: Table, scopes: Sequence[Scope]) -> None:
        self._spark, self._table, self._scopes = spark, table, scopes

    def inputs(self, frame: DataFrame, source: Topic | Table) -> DataFrame:
        """Rows of an input that can matter: a superset of those within `lookback` of a scope's rows."""
        return self._coarse(frame, time_column(source), self._table.lookback_ms or 0)

    def outputs(self, frame: DataFrame) -> DataFrame:
        """Exactly the rows of the table, live or recomputed, that lie in the scopes."""
        from pyspark.sql import functions as F

        coarse = self._coarse(frame, self._table.event_time, 0)
        if all(s.interval is None and ... in s.values for s in self._scopes) and self._scopes:
            return coarse
        by = self._table.recompute_by
        rows = [
            (
                *(None if v is ... else v for v in s.values),
                *(v is ... for v in s.values),
                *((s.interval.start, s.interval.end) if s.interval else (None, None)),
            )
            for s in self._scopes
        ]
        types = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
        schema = ", ".join(
            [f"v{n} {types[c]}" for n, c in enumerate(by)]
            + [f"any{n} boolean" for n in range(len(by))]
            + ["start bigint", "end bigint"]
        )
        wanted = F.broadcast(self._spark.createDataFrame(rows, schema))
        match: Column = F.lit(True)
        for n, column in enumerate(by):
            match &= F.col(f"any{n}") | coarse[column].eqNullSafe(F.col(f"v{n}"))
        if self._table.event_time:
            at = F.unix_millis(coarse[self._table.event_time].cast("timestamp"))
            match &= F.col("start").isNull() | ((at >= F.col("start")) & (at < F.col("end")))
        return coarse.join(wanted, match, "left_semi")

    def _coarse(self, frame: DataFrame, time: str | None, slack_ms: int) -> DataFrame:
        from pyspark.sql import functions as F

        for n, column in enumerate(self._table.recompute_by):
            values = {s.values[n] for s in self._scopes}
            if column in frame.columns and ... not in values and len(values) <= _MANY_VALUES:
                known = [v for v in values if v is not None]
                condition = F.col(column).isin(known)
                frame = frame.where(condition | F.col(column).isNull() if None in values else condition)
        if time and all(s.interval for s in self._scopes):
            ranges = coalesce(s.interval.widened(slack_ms) for s in self._scopes if s.interval)
            if len(ranges) > _MANY_RANGES:
                ranges = [Interval(ranges[0].start, ranges[-1].end)]
            is_date = dict(frame.dtypes)[time] == "date"
            condition = F.lit(False)
            for r in ranges:
                start, end = from_epoch_ms(r.start), from_epoch_ms(r.end)
                if is_date:
                    condition |= F.col(time).between(start.date(), end.date())
                else:
                    condition |= (F.col(time) >= F.lit(start)) & (F.col(time) < F.lit(end))
            frame = frame.where(condition)
        return frame


def _around(time: datetime | date | None, lookback: int) -> Interval | None:
    at = epoch_ms(time)
    return None if at is None else Interval(at - lookback, at + lookback + 1)
