"""What a sample of JSON records says of a topic: types, nullability, event time, identity."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from infra.errors import BadArgument

MOST = 10_000
_INT = 2**31
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)\Z")
_HAPPENED = ("event_time", "occurred_at", "happened_at", "timestamp", "time", "ts", "at", "created_at")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the records have in common.

    Attributes:
        schema: column -> type, as a topic declares it.
        times: columns that can be the event time, the likeliest first.
        identities: column sets in which no two records agree at one time, the likeliest first.
        records: how many there are; `first`: the first of them.
    """

    schema: Mapping[str, str]
    times: Sequence[str]
    identities: Sequence[tuple[str, ...]]
    records: int
    first: Sequence[str]


def read_sample(lines: Iterable[str]) -> Sample:
    """What at most 10,000 lines say, each a JSON object.

    Raises:
        BadArgument: a line is no JSON object, a value has no type of a topic, or there is no line; names the line.
    """
    texts = [line for line, _ in zip(filter(str.strip, lines), range(MOST), strict=False)]
    rows = [_parsed(text, number) for number, text in enumerate(texts, 1)]
    if not rows:
        raise BadArgument("The sample is empty.", hint="Expected one JSON object a line.")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    schema = {column: _type(column, [row.get(column) for row in rows]) for column in columns}
    return Sample(
        schema=schema,
        times=_times(schema),
        identities=_identities(rows, schema),
        records=len(rows),
        first=[text.strip() for text in texts[:3]],
    )


def _parsed(text: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise BadArgument(f"Line {number} of the sample is no JSON: {error}.") from error
    if not isinstance(row, dict):
        raise BadArgument(f"Line {number} of the sample is {type(row).__name__}; expected a JSON object.")
    return row


def _type(column: str, values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    nullable = "?" if len(known) < len(values) else ""
    if any(isinstance(value, list) for value in known):
        elements = [element for value in known if isinstance(value, list) for element in value]
        if not all(isinstance(value, list) for value in known) or None in elements:
            raise BadArgument(f"{column} is not always a list of values.", hint="Leave it out of the sample.")
        return f"array<{_scalar(column, elements)}>{nullable}"
    return _scalar(column, known) + nullable


def _scalar(column: str, values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values}
    if kinds & {dict, list}:
        raise BadArgument(
            f"{column} holds objects, or lists of lists.",
            hint="Leave it out of the sample, and declare it by hand: docs/reference/types.md lists the types.",
        )
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "int" if all(-_INT <= value < _INT for value in values) else "long"
    if kinds and kinds <= {int, float}:
        return "double"
    if kinds == {str}:
        if all(_TIME.match(value) and _is(datetime, value) for value in values):
            return "timestamp"
        return "date" if all(_DATE.match(value) and _is(date, value) for value in values) else "string"
    if not kinds:
        return "string"
    raise BadArgument(f"{column} is of several types: {', '.join(sorted(kind.__name__ for kind in kinds))}.")


def _is(kind: type[date], text: str) -> bool:
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True


def _times(schema: Mapping[str, str]) -> list[str]:
    times = [column for column, kind in schema.items() if kind == "timestamp"]
    return sorted(times, key=lambda c: _HAPPENED.index(c) if c in _HAPPENED else len(_HAPPENED))


def _identities(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Single columns first, those called `id` before others; then pairs."""
    usable = [column for column, kind in schema.items() if kind in ("string", "int", "long")]
    usable.sort(key=lambda c: (c != "id", not c.endswith(("_id", "Id", "uuid", "key"))))
    singles: list[tuple[str, ...]] = [(column,) for column in usable]
    pairs: list[tuple[str, ...]] = [(a, b) for n, a in enumerate(usable) for b in usable[n + 1 :]]
    distinct: list[tuple[str, ...]] = [
        columns for columns in [*singles, *pairs] if len({tuple(row[c] for c in columns) for row in rows}) == len(rows)
    ]
    single: list[tuple[str, ...]] = [columns for columns in distinct if len(columns) == 1]
    return single or distinct or singles[:1]
