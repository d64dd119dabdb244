"""Parses and validates the arguments of commands."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from twofold.infra.errors import BadArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from twofold.batch.offset_selection import LogPosition
    from twofold.tables.declare.registry import Registry

_OFFSETS = re.compile(r"\d+:\d+(,\d+:\d+)*\Z")
_NUMBERS = re.compile(r"\d+(,\d+)*\Z")
_BEGINS_LIKE_A_DATE = re.compile(r"\d{4}-")


def parse_time(text: str, option: str) -> datetime:
    """Parses a date or a time in ISO 8601 to an instant in UTC; without an offset it is UTC."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise BadArgument(
            f"{option}={text!r}: expected a date or a time.", hint="Write 2013-01-05, or 2013-01-05T06:30 (UTC)."
        ) from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def parse_date(text: str, option: str) -> date:
    """Parses a calendar day such as `2013-01-05`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadArgument(f"{option}={text!r}: expected a date.", hint="Write 2013-01-05.") from None


def parse_days(start: str | None, end: str | None, otherwise: tuple[date, date]) -> tuple[date, date]:
    """Parses the days `[start, end)` of two options; each defaults to its value in `otherwise`.

    Raises:
        BadArgument: no date, or no range.
    """
    first = parse_date(start, "--start") if start else otherwise[0]
    last = parse_date(end, "--end") if end else otherwise[1]
    require_order(first, last)
    return first, last


def require_order(start: date, end: date) -> None:
    """Refuses an empty or reversed range `[start, end)`."""
    if start >= end:
        raise BadArgument(
            f"--start {start.isoformat()} is not before --end {end.isoformat()}.",
            hint="The end itself is not part of the range.",
        )


def parse_offsets(text: str | None, option: str, partitions: int) -> Mapping[int, int] | None:
    """Parses `0:1200,2:80` to offsets by partition, or `1200` for every partition; None for None.

    Raises:
        BadArgument: another form, a partition twice, or one that the topic does not have.
    """
    if text is None:
        return None
    if text.isdecimal():
        return dict.fromkeys(range(partitions), int(text))
    if not _OFFSETS.match(text):
        raise BadArgument(
            f"{option}={text!r}: expected offsets.",
            hint="Write one offset for every partition, 1200, or partition:offset pairs, 0:1200,2:80; where a time "
            "is possible, 2013-01-05T06:30 (UTC).",
        )
    pairs = [
        (int(partition), int(offset)) for partition, _, offset in (pair.partition(":") for pair in text.split(","))
    ]
    offsets = dict(pairs)
    if len(offsets) < len(pairs):
        raise BadArgument(f"{option}={text!r} names a partition twice.")
    if foreign := sorted(set(offsets) - set(range(partitions))):
        raise BadArgument(
            f"{option}={text!r} names partition {foreign[0]}.",
            hint=f"The topic has the partitions 0 to {partitions - 1}.",
        )
    return offsets


def parse_partitions(text: str | None, option: str, partitions: int) -> Sequence[int] | None:
    """Parses a list of partitions such as `0,2`; None for None.

    Raises:
        BadArgument: another form, or one that the topic does not have.
    """
    if text is None:
        return None
    if not _NUMBERS.match(text):
        raise BadArgument(f"{option}={text!r}: expected numbers of partitions.", hint="Write 0,2.")
    chosen = sorted({int(number) for number in text.split(",")})
    if chosen[-1] >= partitions:
        raise BadArgument(
            f"{option}={text!r} names partition {chosen[-1]}.",
            hint=f"The topic has the partitions 0 to {partitions - 1}.",
        )
    return chosen


def parse_position(text: str | None, option: str, partitions: int) -> LogPosition | None:
    """Parses a position in a topic: offsets as for `parse_offsets`, or a time; None for None and for `earliest`.

    Raises:
        BadArgument: none of these.
    """
    if text in (None, "earliest"):
        return None
    if text.isdecimal() or _OFFSETS.match(text) or not _BEGINS_LIKE_A_DATE.match(text):
        return parse_offsets(text, option, partitions)
    return parse_time(text, option)


def parse_key(words: Sequence[str], key: Sequence[str], schema: pa.Schema) -> dict[str, object]:
    """Parses the key of a row from `column=value` words, each value to its column's type.

    Raises:
        BadArgument: a word of another form, a column that is unknown or missing, a value of another type.
    """
    pairs = [word.partition("=") for word in words]
    form = "Write " + " ".join(f"{column}=..." for column in key) + "."
    if wrong := [word for word, (_, equals, _) in zip(words, pairs, strict=True) if not equals]:
        raise BadArgument(f"{wrong[0]!r}: expected column=value.", hint=form)
    given = {column: value for column, _, value in pairs}
    if foreign := [column for column in given if column not in key]:
        raise BadArgument(f"{foreign[0]!r} is no column of the key.", hint=form)
    if missing := [column for column in key if column not in given]:
        raise BadArgument(f"The key misses {', '.join(missing)}.", hint=form)
    return {column: _typed(given[column], column, schema.field(column).type) for column in key}


def _typed(text: str, column: str, kind: pa.DataType) -> object:
    import pyarrow.types as is_type

    if is_type.is_timestamp(kind):
        return parse_time(text, column)
    if is_type.is_date(kind):
        return parse_date(text, column)
    try:
        if is_type.is_integer(kind):
            return int(text)
        if is_type.is_floating(kind):
            return float(text)
    except ValueError:
        raise BadArgument(f"{column}={text!r}: expected a number.") from None
    return {"true": True, "false": False}.get(text, text) if is_type.is_boolean(kind) else text


def parse_speed(text: str) -> float | None:
    """Parses a speed as a multiple of real time; None for `max`, as fast as possible."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise BadArgument(
            f"--speed={text!r}: expected 'max' or a number above 0.", hint="--speed 60 plays an hour in a minute."
        )
    return speed


def require_share(value: float, option: str) -> float:
    """Returns a share of the records; refuses one outside of 0 to 1."""
    if not 0 <= value <= 1:
        raise BadArgument(f"{option}={value}: expected a share from 0 to 1.", hint="0.02 is one record in fifty.")
    return value


def require_name(name: str, domain: str, registry: Registry) -> None:
    """Refuses an invalid name of a topic or table, or one that is in use in its domain."""
    from twofold.tables.declare.parameter_checks import NAME

    if not NAME.match(name) or keyword.iskeyword(name) or name.endswith("_quarantine"):
        raise BadArgument(
            f"{name!r} cannot name a topic or a table.",
            hint="Use lower-case letters, digits and _, beginning with a letter; the ending _quarantine is taken.",
        )
    if f"{domain}.{name}" in {**registry.topics, **registry.tables}:
        raise BadArgument(f"{domain}.{name} is declared already.", hint=f"See tables/{domain}/{name}.py.")
