"""Builds columns from parsed objects, field by field down to the leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from twofold.infra.encodings.column_types import FieldType


def object_columns(objects: Sequence[Any], fields: Sequence[tuple[str, FieldType]]) -> dict[str, pa.Array]:
    """Builds the columns of objects that msgspec parsed by `struct_type`, by field."""
    return {name: _array(list(map(attrgetter(f"f{n}"), objects)), kind) for n, (name, kind) in enumerate(fields)}


def _array(cells: list[Any], kind: FieldType) -> pa.Array:
    if kind.nullable:
        cells = [None if cell is msgspec.UNSET else cell for cell in cells]
    if kind.name != "struct" and (kind.element is None or not _has_struct(kind.element)):
        return pa.array(cells, kind.arrow)
    missing = np.array([cell is None for cell in cells], bool) if kind.nullable else np.zeros(len(cells), bool)
    has_missing = bool(missing.any())
    there = [cell for cell in cells if cell is not None] if has_missing else cells
    if kind.name == "struct":
        columns = list(object_columns(there, kind.fields).values())
        if has_missing:
            places = pa.array(np.cumsum(~missing) - 1, mask=missing)
            columns = [column.take(places) for column in columns]
        return pa.Array.from_buffers(kind.arrow, len(cells), [_valid(missing)], children=columns)
    sizes = np.zeros(len(cells), np.int64)
    sizes[~missing] = [len(cell) for cell in there]
    ends = pa.py_buffer(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    if kind.name == "map":
        keys = pa.array(list(chain.from_iterable(there)), pa.string())
        items = _array(list(chain.from_iterable(cell.values() for cell in there)), _element(kind))
        parts = [pa.StructArray.from_arrays([keys, items], fields=[kind.arrow.key_field, kind.arrow.item_field])]
    else:
        parts = [_array(list(chain.from_iterable(there)), _element(kind))]
    return pa.Array.from_buffers(kind.arrow, len(cells), [_valid(missing), ends], children=parts)


def _element(kind: FieldType) -> FieldType:
    return kind if kind.element is None else kind.element


def _has_struct(kind: FieldType) -> bool:
    return kind.name == "struct" or (kind.element is not None and _has_struct(kind.element))


def _valid(missing: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
