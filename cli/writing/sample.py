"""Infers a topic from a sample of JSON records: types, nullability, event time, identity."""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from itertools import combinations
from operator import getitem
from typing import Any

from twofold.infra.encodings.column_types import FieldType, parse_type
from twofold.infra.errors import BadArgument
from twofold.tables.declare.parameter_checks import COLUMN
from twofold.tables.declare.record_fields import field

MOST = 10_000
DEPTH, MOST_FIELDS = 2, 20
"""Objects of which a declaration names the fields: within so many others, and of no more fields."""
_MOST_PAIRED = 16
_INT = 2**31
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?\Z")
_ZONE = re.compile(r"(Z|[+-]\d\d:\d\d)\Z")
_IDENTIFYING = ("_id", "Id", "uuid", "key")
_HAPPENED = ("event_time", "occurred_at", "happened_at", "timestamp", "time", "ts", "at", "created_at")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The schema that the records of a sample share.

    Attributes:
        schema: column -> type, as a topic declares it.
        times: columns that can be the event time, likeliest first; those within structs by their path: `meta.at`.
        identities: column sets whose values identify each record, likeliest first.
        records: number of records; `first`: the first of them.
        notes: remarks on fields that the sample does not decide or a declaration cannot name, one sentence each.
    """

    schema: Mapping[str, str]
    times: Sequence[str]
    identities: Sequence[tuple[str, ...]]
    records: int
    first: Sequence[str]
    notes: Sequence[str] = ()

    def require(self, path: str) -> None:
        """Refuses a path that is neither a column nor a field that every record has within one.

        Raises:
            BadArgument: names the columns.
        """
        if path not in self.schema and path not in _scalars(self.schema):
            raise BadArgument(
                f"The sample has no column {path!r}.",
                hint=f"It has {', '.join(self.schema)}; --depth declares the fields of objects within objects.",
            )

    def with_columns(self, paths: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the schema in which these paths are columns, and the column of each path.

        The neighbouring fields of a path become columns, too: a struct is declared as a whole or field by field.
        """
        places: dict[tuple[str, ...], FieldType] = {
            (column,): parse_type(column, kind) for column, kind in self.schema.items()
        }
        for path in paths:
            names = tuple(path.split("."))
            for depth in range(1, len(names)):
                places = dict(_opened(places, names[:depth]))
        schema: dict[str, str] = {}
        columns: dict[str, str] = {}
        taken = {place[0].lower() for place in places if len(place) == 1}
        for place, kind in places.items():
            last = place[-1]
            is_free = last.lower() not in taken and _can_name(last, is_column=True)
            column = last if len(place) == 1 or is_free else "_".join(place)
            taken.add(column.lower())
            schema[column] = kind.text if len(place) == 1 else field(".".join(place), kind.text)
            columns[".".join(place)] = column
        return schema, columns


def read_sample(lines: Iterable[str], depth: int = DEPTH) -> Sample:
    """Infers the schema of at most 10,000 lines, each a JSON object.

    Args:
        depth: an object becomes a struct down to this level, 1 for those that are columns; those below become `json`.

    Raises:
        BadArgument: a line is no JSON object, or there is no line; names the line.
    """
    texts = [line for line, _ in zip(filter(str.strip, lines), range(MOST), strict=False)]
    rows = [_parsed(text, number) for number, text in enumerate(texts, 1)]
    if not rows:
        raise BadArgument("The sample is empty.", hint="Expected one JSON object per line.")
    types = _Types(depth)
    schema = types.of_fields("", rows)
    return Sample(
        schema=schema,
        times=_times(schema),
        identities=_identities(rows, schema),
        records=len(rows),
        first=[text.strip() for text in texts[:3]],
        notes=types.notes,
    )


def _parsed(text: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise BadArgument(f"Line {number} of the sample is not JSON: {error}.") from error
    if not isinstance(row, dict):
        raise BadArgument(f"Line {number} of the sample is {type(row).__name__}; expected a JSON object.")
    return row


class _Types:
    """Infers types, and notes fields that it cannot infer.

    Decimals look like doubles, and base64 like strings, so they are never guessed.
    """

    def __init__(self, depth: int) -> None:
        self.notes: list[str] = []
        self._depth = depth

    def of_fields(self, path: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Infers the types of an object's fields at this path; fields that no declaration can name are left out."""
        types: dict[str, str] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            place = f"{path}.{name}" if path else name
            if not _can_name(name, is_column=not path) or name.lower() in {name_of.lower() for name_of in types}:
                self.notes.append(f"{place} cannot name a column: it is left out, and kept in _rest.")
                continue
            types[name] = self._type(place, [row.get(name) for row in rows])
        return types

    def _type(self, path: str, values: Sequence[Any]) -> str:
        present = [value for value in values if value is not None]
        return self._known(path, present) + ("?" if len(present) < len(values) else "")

    def _known(self, path: str, values: Sequence[Any]) -> str:
        kinds = {type(value) for value in values}
        if kinds == {dict}:
            return self._object(path, values)
        if kinds == {list}:
            elements = [element for value in values for element in value]
            return f"array<{self._type(f'{path}[]', elements)}>"
        if not kinds:
            self.notes.append(f"{path} has no value in the sample: its type is open.")
            return "json"
        scalar = _scalar(kinds, values)
        if scalar is None:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            self.notes.append(f"{path} has values of several types ({names}), or a number beyond 64 bits.")
        return scalar or "json"

    def _object(self, path: str, values: Sequence[Mapping[str, Any]]) -> str:
        if is_map := _has_varying_keys(values):
            cells = [cell for value in values for cell in value.values()]
            if "." not in path and "[" not in path:  # within another type there are no maps
                return f"map<string,{self._type(f'{path}.*', cells)}>"
        if not is_map and (why := self._is_too_large(path, values)):
            self.notes.append(f"{path} is an object {why}: it is kept as json; --depth names the fields of more.")
            return "json"
        fields = {} if is_map else self.of_fields(path, values)
        if not fields:
            self.notes.append(f"{path} is an object whose fields {'vary' if is_map else 'cannot be named'}.")
            return "json"
        return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"

    def _is_too_large(self, path: str, values: Sequence[Mapping[str, Any]]) -> str:
        """Explains, for people, why the fields of an object are not declared; empty if they are."""
        if path.count(".") >= self._depth:
            return f"within {self._depth} others"
        fields = len({name for value in values for name in value})
        return f"of {fields} fields" if fields > MOST_FIELDS and self._depth == DEPTH else ""


def _has_varying_keys(values: Sequence[Mapping[str, Any]]) -> bool:
    """Whether keys are data: no key is in more than half of the objects, and their values are all alike."""
    counts = Counter(key for value in values for key in value)
    kinds = {float if type(cell) is int else type(cell) for value in values for cell in value.values()}
    return len(counts) > 2 and len(kinds - {type(None)}) == 1 and 2 * max(counts.values()) <= len(values)


def _can_name(name: str, *, is_column: bool) -> bool:
    return bool(COLUMN.match(name)) and not keyword.iskeyword(name) if is_column else name.isidentifier()


def _scalar(kinds: set[type], values: Sequence[Any]) -> str | None:
    """Infers the scalar type of these values; None if they have no common type."""
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return "int" if all(-_INT <= value < _INT for value in values) else "long"
    if float in kinds and kinds <= {int, float}:
        return "double"
    if kinds != {str}:
        return None
    if all(_TIME.match(value) and _is(datetime, value) for value in values):
        zoned = [_ZONE.search(value) is not None for value in values]
        return "timestamp" if all(zoned) else "string" if any(zoned) else "timestamp_ntz"
    return "date" if all(_DATE.match(value) and _is(date, value) for value in values) else "string"


def _is(kind: type[date], text: str) -> bool:
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True


def _opened(
    places: Mapping[tuple[str, ...], FieldType], wanted: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], FieldType]]:
    """Yields these places, with the struct at one of them replaced by its fields."""
    for place, kind in places.items():
        if place == wanted:
            yield from (((*place, name), part) for name, part in kind.fields)
        else:
            yield place, kind


def _scalars(schema: Mapping[str, str]) -> dict[str, str]:
    """Maps the paths of scalars that every record has to their types, the least nested first."""
    scalars: dict[str, str] = {}
    places = [(column, parse_type(column, kind)) for column, kind in schema.items()]
    while places:
        scalars |= {path: kind.text for path, kind in places if not kind.fields and not kind.nullable}
        places = [(f"{path}.{name}", part) for path, kind in places if not kind.nullable for name, part in kind.fields]
    return scalars


def _times(schema: Mapping[str, str]) -> list[str]:
    """Returns the paths of instants that are never null, likeliest event time first."""
    times = [path for path, kind in _scalars(schema).items() if kind == "timestamp"]
    rank = {name: n for n, name in enumerate(_HAPPENED)}
    return sorted(times, key=lambda path: (path.count("."), rank.get(path.rpartition(".")[2], len(rank))))


def _identities(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Returns the paths, or pairs of paths, that identify records, likeliest first."""
    usable = [path for path, kind in _scalars(schema).items() if kind in ("string", "int", "long")]
    usable.sort(key=lambda path: (path.count("."), path.rpartition(".")[2] != "id", not path.endswith(_IDENTIFYING)))
    values = {path: [_at(row, path) for row in rows] for path in usable}
    singles: list[tuple[str, ...]] = [(path,) for path in usable]
    if distinct := [columns for columns in singles if len(set(values[columns[0]])) == len(rows)]:
        return distinct
    pairs = combinations(usable[:_MOST_PAIRED], 2)
    return [
        pair for pair in pairs if len(set(zip(values[pair[0]], values[pair[1]], strict=True))) == len(rows)
    ] or singles[:1]


def _at(row: Mapping[str, Any], path: str) -> Any:
    return reduce(getitem, path.split("."), row)
