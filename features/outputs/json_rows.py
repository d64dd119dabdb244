"""Rows of a copy and their changes as JSON, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import md5
from typing import Any

import pyarrow as pa

from twofold.features.outputs.refused_rows import Refused
from twofold.infra.delta.delta_writer import BEFORE, CHANGE
from twofold.tables.output_view import KEY
from twofold.tables.refresh.json_values import from_plain_json, to_plain_json

Row = Mapping[str, Any]
Sides = tuple[str, Row | None, Row | None]
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


def json_changes(changes: pa.Table, refused: list[Refused]) -> Iterator[tuple[str, Sides]]:
    """Yields each key with its change, whose rows lack the key as JSON, but those that `json_rows` refuses.

    A change is its kind (insert, update, delete), and the row before and after.
    """
    names = [n for n in changes.column_names if n not in (KEY, CHANGE) and not n.startswith(BEFORE)]
    for number in range(len(changes)):
        one = changes.slice(number, 1)
        key = one[KEY][0].as_py()
        try:
            [change] = one.to_pylist()
        except (ValueError, OverflowError) as error:
            refused.append(Refused(key=key, reason=str(error)))
            continue
        kind, row = change[CHANGE], {n: change[n] for n in names}
        before = row if kind == "delete" else {n: change[BEFORE + n] for n in names}
        yield key, (kind, None if kind == "insert" else before, None if kind == "delete" else row)


def rows_of_page(rows: Iterable[Row], schema: pa.Schema, page: int, pages: int) -> pa.Table:
    """Returns the rows whose keys belong to a page; see `read_back` for what cannot be read."""
    kinds = [None if field.name == KEY else field.type for field in schema]
    back = [
        read_back([row.get(name) for name in schema.names], kinds)
        for row in rows
        if int(md5(row[KEY].encode()).hexdigest()[:8], 16) % pages == page
    ]
    return pa.table([pa.array([row[n] for row in back], f.type) for n, f in enumerate(schema)], schema=schema)


def read_back(row: Sequence[Any], kinds: Sequence[pa.DataType | None]) -> list[Any]:
    """Converts a row of a copy from JSON form.

    A row with a value that is none of its column is read as its key alone, so that it differs from what it should be,
    and is removed if it should not be.

    Args:
        kinds: of the columns; None: the value is kept as it is, as that of the key.
    """
    with suppress(ValueError, TypeError, AttributeError, ArithmeticError, pa.ArrowException):
        return [
            value if kind is None else pa.scalar(from_plain_json(value, kind), kind).as_py()
            for value, kind in zip(row, kinds, strict=True)
        ]
    return [value if n == 0 else None for n, value in enumerate(row)]
