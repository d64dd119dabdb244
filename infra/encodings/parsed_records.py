"""The result type of all record parsers: columns, and faults by row."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.encodings.record_format import RecordFormat


@dataclass(frozen=True)
class Parsed:
    """The parsed records of a batch, column by column, and the faults of the others.

    Attributes:
        rows: the numbers of the records that could be parsed, ascending.
        columns: field of a record, of `RecordFormat.types` -> the values of these records.
        faults: row -> the reasons why it could not be parsed.
        rests: of each row the fields that the schema does not name, as JSON; None if there are none.
    """

    rows: Sequence[int]
    columns: Mapping[str, pa.Array]
    faults: dict[int, list[str]]
    rests: Sequence[str | None] = field(default=())


def with_tombstones(parsed: Parsed, values: pa.ChunkedArray) -> Parsed:
    """Adds each record without a value as a row of nulls."""
    tombstones = pc.indices_nonzero(values.is_null()).to_pylist()
    if not tombstones:
        return parsed
    place = {row: number for number, row in enumerate(parsed.rows)}
    rows = sorted([*parsed.rows, *tombstones])
    taken = [place.get(row) for row in rows]
    return Parsed(
        rows,
        {name: column.take(pa.array(taken, pa.int64())) for name, column in parsed.columns.items()},
        {row: reasons for row, reasons in parsed.faults.items() if row not in set(tombstones)},
        [None if number is None else parsed.rests[number] for number in taken] if parsed.rests else [None] * len(rows),
    )


class Parser(Protocol):
    """Parses the records of one encoding; one parser per topic and process."""

    def __init__(self, format: RecordFormat) -> None: ...

    def parse(self, raw: pa.Table) -> Parsed:
        """Parses records; reads the column `value`, and `headers` for encodings with schema files.

        A record that does not fit raises nothing.
        """
        ...


def sized(value: bytes | None, max_bytes: int, expected: str) -> str | None:
    """Explains why a value is refused for its size or absence; None if it is to be parsed."""
    if value is None:
        return f"no value: expected {expected}; tombstones need a topic that is declared with compacted=True"
    if len(value) > max_bytes:
        return f"{len(value)} bytes: expected at most {max_bytes}"
    return None


@contextmanager
def without_gc() -> Iterator[None]:
    """Disables garbage collection: parsing creates many objects without cycles, and collection costs a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
