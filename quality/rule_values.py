"""The values with which rules are declared, and how engines get them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BadDeclaration
from twofold.infra.spark.spark_literals import literal_of

if TYPE_CHECKING:
    import pyarrow as pa
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


def domains_of(value: object) -> tuple[str, ...]:
    """Returns the kinds of column that can hold a value, as `Rule.domains` names them."""
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, str):
        return ("string",)
    if isinstance(value, datetime):
        return ("timestamp",)
    if isinstance(value, date):
        return ("date", "timestamp")
    return ("number",)


def spark_bound(bound: object, of: DataType) -> Column:
    """Returns a bound as a column of a type is compared with it."""
    return literal_of(utc(bound) if of.typeName().startswith("timestamp") else bound)


def comparable(column: pa.Array, values: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    """Returns a column and values, some of them None, in the type in which Spark compares them.

    Numbers are doubles when one is, a decimal compared with whole numbers is a wide one, a timestamp without a zone is
    read as UTC.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    of, has_fraction = column.type, any(isinstance(value, float) for value in values)
    if pa.types.is_timestamp(of):
        instants = [None if value is None else utc(value) for value in values]
        return column, pa.array(instants, pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us", tz=of.tz))
    if pa.types.is_decimal(of) and not has_fraction:
        return column.cast(pa.decimal256(76, of.scale)), pa.array(values, pa.decimal256(76, of.scale))
    if pa.types.is_floating(of) or has_fraction:
        # With 0.0 added there is one zero, which is_in has two of.
        doubles = [None if value is None else float(value) for value in values]
        return pc.add(column.cast(pa.float64(), safe=False), 0.0), pc.add(pa.array(doubles, pa.float64()), 0.0)
    of = pa.int64() if pa.types.is_integer(of) else of
    return column.cast(of), pa.array(values, of)
