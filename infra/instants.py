"""Instants as milliseconds since 1970, and intervals of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, which a `datetime` can hold."""
_PAST = 10**14  # milliseconds before 1970: further back than any event, so that integers divide downwards


@dataclass(frozen=True, order=True)
class Interval:
    """Half-open: event times with `start <= t < end`, epoch milliseconds."""

    start: int
    end: int

    def widened(self, by: int) -> Interval:
        return Interval(self.start - by, self.end + by)


def epoch_ms(value: datetime | date | None) -> int | None:
    """Converts a time to milliseconds since 1970, rounded down; a date is its midnight in UTC."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (value - EPOCH) // timedelta(milliseconds=1)


def from_epoch_ms(value: int) -> datetime:
    """Converts milliseconds since 1970 to a `datetime`, clamped to the range that a `datetime` can hold."""
    seconds = min(max(value, FIRST_US // 1_000), LAST_US // 1_000)
    return EPOCH + timedelta(milliseconds=seconds)


def are_datetimes(values: pa.ChunkedArray) -> bool:
    """Whether Python can hold all values of a column; dates and times must be of the years 1 to 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type)):
        return True
    held = pc.and_(
        pc.greater_equal(times := epoch_ms_of(values), FIRST_US // 1_000), pc.less_equal(times, LAST_US // 1_000)
    )
    return bool(pc.all(pc.fill_null(held, True)).as_py())


def epoch_ms_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts an array of dates or times to milliseconds since 1970, rounded down."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date32(times.type):
        return pc.multiply(times.cast(pa.int32()).cast(pa.int64()), DAY_MS)
    us = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.subtract(pc.divide(pc.add(us, _PAST * 1_000), 1_000), _PAST)
