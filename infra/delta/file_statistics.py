"""Statistics of data files: the columns whose bounds hold for every row, so that readers may skip files by them.

delta-rs 1.6 writes bounds of decimals as 64-bit integers or doubles, which truncates and rounds them, and bounds of
floats without NaN. A reader that skips a file by such bounds misses rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, WriterProperties

_log = logging.getLogger("twofold.statistics")


def has_true_bounds(kind: pa.DataType) -> bool:
    """Whether the bounds of a column of this type hold for all its rows."""
    import pyarrow as pa

    return not (pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def with_true_bounds(schema: pa.Schema, columns: Iterable[str]) -> list[str]:
    """Filters columns to those whose bounds hold."""
    return [name for name in columns if name not in schema.names or has_true_bounds(schema.field(name).type)]


def bounds_of(table: DeltaTable, column: str) -> tuple[Any, Any]:
    """Returns the least and the greatest value of a column, from file statistics, or from the rows if a file has none.

    Times from statistics are cut to the millisecond. Both bounds are None if there is no value or no such column.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema(table.schema())
    if column not in schema.names:
        return None, None
    files = pa.table(table.get_add_actions(flatten=True))
    least, greatest, nulls = (f"{kind}.{column}" for kind in ("min", "max", "null_count"))
    if {least, greatest, nulls} <= set(files.column_names) and has_true_bounds(schema.field(column).type):
        is_known = pc.or_(pc.is_valid(files[greatest]), pc.equal(files[nulls], files["num_records"]))
        if pc.all(pc.fill_null(is_known, False)).as_py():
            return pc.min(files[least]).as_py(), pc.max(files[greatest]).as_py()
    bounds = pc.min_max(pa.table(table.scan(columns=[column]))[0]).as_py()
    return bounds["min"], bounds["max"]


def parquet_properties(table: DeltaTable) -> WriterProperties:
    """Returns delta-rs options for Parquet files: no bounds of floats, which DuckDB reads from the file itself."""
    import pyarrow as pa
    from deltalake import ColumnProperties, WriterProperties

    floats = [field.name for field in pa.schema(table.schema()) if pa.types.is_floating(field.type)]
    without = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(compression="SNAPPY", column_properties=dict.fromkeys(floats, without))


def forget_untrue_bounds(table: DeltaTable) -> bool:
    """Removes bounds that may not hold from the log entries of all files, in one commit that changes no row.

    Returns:
        Whether there were any.

    Raises:
        CommitFailedError: another writer committed meanwhile; nothing was changed.
    """
    import pyarrow as pa
    from deltalake import CommitProperties
    from deltalake.transaction import AddAction

    entries = pa.table(table.get_add_actions()).to_pylist()
    if not any(_has_untrue([entry["min"], entry["max"]]) for entry in entries):
        return False
    actions: list[Any] = [
        AddAction(
            entry["path"],
            entry["size_bytes"],
            entry.get("partition") or {},
            entry["modification_time"],
            data_change=False,
            stats=json.dumps(_statistics(entry)),
        )
        for entry in entries
    ]
    # No retry over commits of others: a file that one of them removed would come back.
    once = CommitProperties(max_commit_retries=0)
    table.create_write_transaction(actions, "append", table.schema(), commit_properties=once)
    _log.info("bounds taken out table=%s files=%d", table.table_uri, len(entries))
    return True


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the statistics of a file in the log's format, without bounds that may not hold."""
    bounds = {"minValues": _true(entry["min"] or {}), "maxValues": _true(entry["max"] or {})}
    return {"numRecords": entry["num_records"], **bounds, "nullCount": _true(entry["null_count"] or {})}


def _has_untrue(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_untrue, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal | float)


def _true(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _true(value) if isinstance(value, dict) else _as_in_log(value)
        for name, value in values.items()
        if value is not None and not isinstance(value, Decimal | float)
    }


def _as_in_log(value: Any) -> Any:
    """Formats a value of statistics as in the Delta log, times cut to the millisecond."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
