"""A table of counts by key, and what tests write to it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from twofold.infra.delta.delta_writer import BEFORE, CHANGE, CommitTag
from twofold.infra.delta.lake import Lake

NAME = "plant.counts"
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
Row = tuple[Any, ...]


def rows(*cells: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=False)) for row in cells], schema=schema)


def stored(lake: Lake, name: str = NAME) -> list[Row]:
    """The table's rows as delta-rs reads them, sorted."""
    found = pa.table(lake.open(name).scan()).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def stamp(version: int, app: str = "test", **info: object) -> CommitTag:
    return CommitTag(app=app, version=version, info=info)


def difference(*changes: tuple[str, Row, Row | None], schema: pa.Schema = SCHEMA) -> pa.Table:
    """(change, row, what the row was before) as `tables.refresh.row_diff` tells it; the key is the first column."""
    before = [(BEFORE + field.name, field.type) for field in schema][1:]
    cells = [(*row, change, *(was or [None] * len(schema))[1:]) for change, row, was in changes]
    return rows(*cells, schema=pa.schema([*schema, (CHANGE, pa.string()), *before]))
