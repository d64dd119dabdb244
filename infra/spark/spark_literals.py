"""Writes values as Spark literals; Spark's own literals shift times before 1582, by another calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from twofold.infra.instants import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import Column


def instant_of(ms: int) -> Column:
    """Builds a timestamp column of epoch milliseconds, for any year."""
    from pyspark.sql import functions as F

    return F.timestamp_millis(F.lit(ms))


def date_of(days: int) -> Column:
    """Builds a date column of days since 1970, for any year."""
    from pyspark.sql import functions as F

    return F.date_from_unix_date(F.lit(days))


def literal_of(value: object) -> Column:
    """Builds a column of a constant; a `datetime` without a zone is a `timestamp_ntz`."""
    from pyspark.sql import functions as F

    if isinstance(value, datetime):
        since = value.replace(tzinfo=value.tzinfo or UTC) - EPOCH
        at = F.timestamp_micros(F.lit(since // timedelta(microseconds=1)))
        return at if value.tzinfo else at.cast("timestamp_ntz")
    return date_of(value.toordinal() - EPOCH.toordinal()) if isinstance(value, date) else F.lit(value)
