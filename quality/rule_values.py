"""The values with which rules are declared, and how Spark gets them."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from infra.errors import BadDeclaration
from infra.spark.spark_literals import literal_of
from quality.rule import spark_domain

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def column_name(kind: str, column: object) -> str:
    """Refuses what names no column."""
    if not isinstance(column, str) or not column:
        raise BadDeclaration(f"{kind}({column!r}): expected the name of a column.", hint="Write the name as a text.")
    return column


def bound_of(column: str, written: object) -> int | float | date | datetime | None:
    """Reads a bound of `between`: a finite number, a date, an instant or none."""
    if written is None:
        return None
    if isinstance(written, str):
        return _moment(column, written)
    if isinstance(written, bool) or not isinstance(written, int | float) or not is_finite(written):
        raise BadDeclaration(
            f"between({column}) has the bound {written!r}; expected a finite number or a text.",
            hint="None means no bound.",
        )
    return written


def _moment(column: str, written: str) -> date | datetime:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", written, re.ASCII):
            return date.fromisoformat(written)
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            raise ValueError("it has no offset")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadDeclaration(
            f"between({column}) has the bound {written!r}: {error}.",
            hint="Write a date, '2013-01-31', or a timestamp with its offset, '2013-01-31T00:00:00Z'.",
        ) from error


def is_finite(value: object) -> bool:
    """Whether a value is no number, or one that every engine can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def utc(moment: object) -> datetime:
    """Returns the instant of a bound: a date means its midnight in UTC."""
    if isinstance(moment, datetime):
        return moment
    if isinstance(moment, date):
        return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    raise TypeError(f"{moment!r} is no moment")


def spark_bound(bound: object, of: DataType) -> Column:
    """Returns a bound as a column of a type is compared with it."""
    return literal_of(utc(bound) if spark_domain(of) == "timestamp" else bound)
