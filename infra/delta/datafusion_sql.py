"""Selects rows of a Delta table by DataFusion SQL, which skips files by their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from twofold.infra.instants import epoch_ms
from twofold_algebra.sql.names import DATAFUSION

if TYPE_CHECKING:
    from deltalake import DeltaTable


def select(table: DeltaTable, columns: Sequence[str], predicate: str | None = None) -> pa.Table:
    """Reads rows of a table in its own types, only from files and row groups that can hold them."""
    schema = pa.schema(table.schema())
    rows = table.scan(columns=list(columns), predicate=predicate)
    return pa.table(rows).cast(pa.schema([schema.field(name) for name in columns]))


def span(rows: pa.Table, columns: Sequence[str], alias: str = "") -> str:
    """Writes a condition on columns that holds for every row equal to one of these rows, and for some others.

    Bounds of times are a millisecond wider: statistics are cut to the millisecond, so a finer bound would skip a file.

    Args:
        alias: of the relation that has the columns; empty: there is only one.
    """
    parts = ["true"]
    for column in columns:
        field = rows.schema.field(column)
        if rows[column].null_count or not len(rows) or not _has_literals(field.type):
            continue
        least, greatest = pc.min_max(rows[column]).as_py().values()
        first, last = _literal(field.type, least, 0), _literal(field.type, greatest, 1)
        name = DATAFUSION.name(*filter(None, (alias, column)))
        parts.append(f"{name} >= {first} AND {name} <= {last}")
    return " AND ".join(parts)


def _has_literals(kind: pa.DataType) -> bool:
    predicates = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_date32)
    return any(is_kind(kind) for is_kind in predicates) or kind == pa.timestamp("us", "UTC")


def _literal(kind: pa.DataType, value: Any, slack_ms: int) -> str:
    if isinstance(value, datetime | date):
        return DATAFUSION.moment(kind, (epoch_ms(value) or 0) + slack_ms)
    return DATAFUSION.literal(value)
