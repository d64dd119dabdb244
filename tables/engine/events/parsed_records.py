"""What a parser of an encoding makes of the raw records of a topic."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.archive.format.record_rows import HEADERS
from tables.engine.declarations.declaration import Topic
from tables.engine.schemas.schema_framing import Framed, framed


@dataclass(frozen=True)
class Parsed:
    """The records of a batch that could be parsed, column by column, and why the others could not.

    Attributes:
        rows: the numbers of the records that could be parsed, ascending.
        columns: field of a record, of `topic.record_types` -> the values of these records.
        faults: row -> every reason why it could not be parsed.
        rests: of each row the fields that the schema does not name, as JSON; None where there are none.
    """

    rows: Sequence[int]
    columns: Mapping[str, pa.Array]
    faults: dict[int, list[str]]
    rests: Sequence[str | None] = field(default=())


class Parser(Protocol):
    """Parses the records of one encoding; one parser per topic and process."""

    def parse(self, raw: pa.Table) -> Parsed:
        """Parse records, with the columns of `raw_schema(topic)`; a record that does not fit raises nothing."""
        ...


def sized(value: bytes | None, topic: Topic, expected: str) -> str | None:
    """Why the bytes are not even looked at; None when they are."""
    if value is None:
        return f"no value: expected {expected}"
    if len(value) > topic.max_bytes:
        return f"{len(value)} bytes: expected at most {topic.max_bytes}"
    return None


@contextmanager
def without_gc() -> Iterator[None]:
    """Thousands of objects are made that all stay and never refer to one another: looking for cycles takes a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class Group:
    """Records of a batch that were written by one schema.

    Attributes:
        written: by which; where each begins is in `starts`.
        rows: their numbers, ascending.
        starts, ends: where each lies in the buffer of the values.
    """

    written: Framed
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def by_schema(
    raw: pa.Table, topic: Topic, expected: str, *, indexed: bool = False
) -> tuple[list[Group], dict[int, list[str]]]:
    """The records of a batch by the schema that their framing names, and why others name none.

    Args:
        expected: what a value is, for people.
        indexed: as of `framed`.
    """
    values = raw["value"].combine_chunks()
    has_headers = raw[HEADERS].null_count < len(raw)
    headers: list[Any] = raw[HEADERS].to_pylist() if has_headers else [None] * len(raw)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if not has_headers and not values.null_count and data is not None:
        plain = _of_one_schema(np.frombuffer(data, np.uint8), bounds, topic.max_bytes, indexed=indexed)
        if plain is not None:
            return [plain], {}
    found: dict[tuple[int | str, tuple[int, ...]], list[tuple[int, int]]] = {}
    faults: dict[int, list[str]] = {}
    for row, value in enumerate(values.to_pylist()):
        unfit = sized(value, topic, expected)
        if unfit is None:
            try:
                frame = framed(value, headers[row], indexed=indexed)
            except ValueError as error:
                unfit = str(error)
            else:
                found.setdefault((frame.schema, frame.message), []).append((row, frame.start))
        if unfit is not None:
            faults[row] = [unfit]
    groups = []
    for (schema, message), places in found.items():
        rows, starts = np.array(places, np.int64).T
        groups.append(Group(Framed(schema, 0, message), rows, bounds[rows] + starts, bounds[rows + 1]))
    return groups, faults


def _of_one_schema(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], max_bytes: int, *, indexed: bool
) -> Group | None:
    """The group of all records, where they begin alike with an id, as nearly every batch does; else None."""
    starts, ends, size = bounds[:-1], bounds[1:], 6 if indexed else 5
    lengths = ends - starts
    if not len(starts) or lengths.min() < size or lengths.max() > max_bytes:
        return None
    heads = data[starts[:, None] + np.arange(size)]
    if (heads != heads[0]).any() or heads[0, 0] or (indexed and heads[0, 5]):
        return None
    message = (0,) if indexed else ()
    return Group(
        Framed(int.from_bytes(heads[0, 1:5].tobytes(), "big"), 0, message), np.arange(len(starts)), starts + size, ends
    )


def joined(parts: Sequence[Parsed], faults: dict[int, list[str]], topic: Topic) -> Parsed:
    """What was parsed of the parts of a batch, in the order of the batch."""
    for part in parts:
        faults.update(part.faults)
    some = [part for part in parts if part.rows]
    if len(some) == 1:
        return Parsed(some[0].rows, some[0].columns, faults, some[0].rests)
    rows = np.concatenate([np.asarray(part.rows, np.int64) for part in some]) if some else np.zeros(0, np.int64)
    order = np.argsort(rows)
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in some] or [pa.array([], kind.arrow)]).take(
            pa.array(order)
        )
        for name, kind in topic.record_types.items()
    }
    rests = [rest for part in some for rest in part.rests]
    return Parsed(rows[order].tolist(), columns, faults, [rests[n] for n in order])
