"""Builds Arrow columns from the values that a library reads, and notes the records with a value that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.encodings.column_types import FieldType

Numbers = npt.NDArray[np.int64]
Build = Callable[[list[Any], Numbers], pa.Array]
"""Makes an array of values; it also gets the record of each."""


class ColumnBuilder:
    """Builds the columns of a batch of records.

    Attributes:
        misfits: number of a record -> why a column cannot hold its value; the columns have any value there.
    """

    def __init__(self) -> None:
        self.misfits: dict[int, str] = {}

    def refuse(self, bad: npt.NDArray[np.bool_], records: Numbers, reason: str) -> None:
        """Notes the reason for the records of the bad values."""
        for record in records[bad].tolist():
            self.misfits.setdefault(record, reason)

    def struct(self, kind: FieldType, parts: Sequence[pa.Array], values: list[Any]) -> pa.Array:
        """Builds a column of structs from columns of their fields, null for each value that is None."""
        return pa.StructArray.from_arrays(parts, fields=list(kind.arrow), mask=_mask(values))

    def lists(self, kind: FieldType, values: list[Any], records: Numbers, items: Build) -> pa.Array:
        """Builds a column of lists, null for each value that is None."""
        offsets, owners = _sizes(values, records)
        inner = items(list(chain.from_iterable(filter(None, values))), owners)
        return pa.ListArray.from_arrays(offsets, inner, type=kind.arrow, mask=_mask(values))

    def maps(self, kind: FieldType, values: list[Any], records: Numbers, items: Build) -> pa.Array:
        """Builds a column of maps with entries ordered by key, null for each value that is None."""
        offsets, owners = _sizes(values, records)
        entries = list(chain.from_iterable(sorted(value.items()) for value in values if value))
        keys = pa.array([key for key, _ in entries], pa.string())
        inner = items([value for _, value in entries], owners)
        return pa.MapArray.from_arrays(offsets, keys, inner, type=kind.arrow, mask=_mask(values))

    def whole_numbers(
        self, kind: FieldType, values: list[Any], records: Numbers, bounds: tuple[int, int, int]
    ) -> pa.Array:
        """Builds a column of integers times the first of `bounds`; refuses numbers outside the others."""
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
        """Builds a column of doubles and refuses those that are not finite; None is null."""
        numbers = pa.array(values, pa.float64())
        finite = pc.fill_null(pc.is_finite(numbers), True).to_numpy(zero_copy_only=False)
        self.refuse(~finite, records, "Expected a number that is finite")
        return numbers


def _sizes(values: list[Any], records: Numbers) -> tuple[pa.Array, Numbers]:
    """Returns the list offsets of the values, and for each item the number of its record."""
    sizes = [len(value or ()) for value in values]
    return pa.array(np.cumsum([0, *sizes]), pa.int32()), np.repeat(records, sizes)


def _mask(values: list[Any]) -> pa.Array | None:
    """Returns the array that marks values that are None; None if there are none."""
    missing = [value is None for value in values]
    return pa.array(missing) if any(missing) else None
