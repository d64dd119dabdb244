"""Rows of a copy as JSON, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import md5
from typing import Any

import pyarrow as pa

from infra.delta.delta_writer import BEFORE, CHANGE
from outputs.refused_rows import Refused
from outputs.view import KEY
from tables.refresh.json_values import from_plain_json, to_plain_json

Row = Mapping[str, Any]
_PART = 1_000


def json_rows(changes: pa.Table, refused: list[Refused]) -> Iterator[tuple[str, Row | None]]:
    """Yields each key with its row after the changes, its key included, as `to_plain_json` writes it.

    Args:
        refused: gets the rows that Python cannot hold, with years beyond 9999; None is yielded for them, as for
            deletes.
    """
    columns = [name for name in changes.column_names if name != CHANGE and not name.startswith(BEFORE)]
    for part in changes.to_batches(max_chunksize=_PART):
        kinds, rows = part[CHANGE].to_pylist(), part.select(columns)
        for number, key in enumerate(part[KEY].to_pylist()):
            row = None
            if kinds[number] != "delete":
                try:
                    row = to_plain_json(rows.slice(number, 1).to_pylist()[0])
                except (ValueError, OverflowError) as error:
                    refused.append(Refused(key=key, reason=str(error)))
            yield key, row


def rows_of_page(rows: Iterable[Row], schema: pa.Schema, page: int, pages: int) -> pa.Table:
    """Returns the rows whose keys belong to a page; a column that a row has not, or with another type, is null."""
    columns: dict[str, list[Any]] = {field.name: [] for field in schema}
    for row in rows:
        if int(md5(row[KEY].encode()).hexdigest()[:8], 16) % pages == page:
            for field in schema:
                columns[field.name].append(_value(row.get(field.name), field.type))
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:
    with suppress(ValueError, TypeError, AttributeError, ArithmeticError, pa.ArrowException):
        return pa.scalar(from_plain_json(value, kind), kind).as_py()
    return None
