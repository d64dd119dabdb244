"""Builds Arrow columns of the values that a library reads, and notes which records have one that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infra.encodings.column_types import FieldType

Numbers = npt.NDArray[np.int64]
Build = Callable[[list[Any], Numbers], pa.Array]
"""Makes an array of values; it also gets the record of each."""


class ColumnBuilder:
    """Builds the columns of a batch of records.

    Attributes:
        misfits: number of a record -> why its column cannot hold one of its values; its columns have any value there.
    """

    def __init__(self) -> None:
        self.misfits: dict[int, str] = {}

    def refuse(self, bad: npt.NDArray[np.bool_], records: Numbers, reason: str) -> None:
        """Note the records of values that are bad."""
        for record in records[bad].tolist():
            self.misfits.setdefault(record, reason)

    def struct(self, kind: FieldType, parts: Sequence[pa.Array], values: list[Any]) -> pa.Array:
        """Structs of these parts, null where the value is None."""
        return pa.StructArray.from_arrays(parts, fields=list(kind.arrow), mask=_mask(values))

    def lists(self, kind: FieldType, values: list[Any], records: Numbers, items: Build) -> pa.Array:
        """Lists, null where the value is None."""
        offsets, owners = _sizes(values, records)
        inner = items(list(chain.from_iterable(filter(None, values))), owners)
        return pa.ListArray.from_arrays(offsets, inner, type=kind.arrow, mask=_mask(values))

    def maps(self, kind: FieldType, values: list[Any], records: Numbers, items: Build) -> pa.Array:
        """Maps, whose entries are in the order of their keys, null where the value is None."""
        offsets, owners = _sizes(values, records)
        entries = list(chain.from_iterable(sorted(value.items()) for value in values if value))
        keys = pa.array([key for key, _ in entries], pa.string())
        inner = items([value for _, value in entries], owners)
        return pa.MapArray.from_arrays(offsets, keys, inner, type=kind.arrow, mask=_mask(values))

    def whole_numbers(
        self, kind: FieldType, values: list[Any], records: Numbers, bounds: tuple[int, int, int]
    ) -> pa.Array:
        """Numbers between two others, times the first of the bounds; null where the value is None."""
        factor, least, greatest = bounds
        numbers = pa.array(values, pa.int64())
        span = pc.min_max(numbers)
        if (span["min"].as_py() or 0) < least or (span["max"].as_py() or 0) > greatest:
            bad = pc.fill_null(pc.or_(pc.less(numbers, least), pc.greater(numbers, greatest)), False)
            self.refuse(bad.to_numpy(zero_copy_only=False), records, f"Expected {kind.text}, got a number beyond it")
            numbers = pc.if_else(bad, 0, numbers)
        numbers = numbers if factor == 1 else pc.multiply(numbers, factor)
        return (numbers.cast(pa.int32()) if kind.name == "date" else numbers).cast(kind.arrow)

    def doubles(self, values: list[Any], records: Numbers) -> pa.Array:
        """Finite numbers that a double can be, null where the value is None."""
        numbers = pa.array(values, pa.float64())
        finite = pc.fill_null(pc.is_finite(numbers), True).to_numpy(zero_copy_only=False)
        self.refuse(~finite, records, "Expected a number that is finite")
        return numbers


def _sizes(values: list[Any], records: Numbers) -> tuple[pa.Array, Numbers]:
    """The offsets of the items of each value, and the record of each item."""
    sizes = [len(value or ()) for value in values]
    return pa.array(np.cumsum([0, *sizes]), pa.int32()), np.repeat(records, sizes)


def _mask(values: list[Any]) -> pa.Array | None:
    """Which values are None; None where none is."""
    missing = [value is None for value in values]
    return pa.array(missing) if any(missing) else None
