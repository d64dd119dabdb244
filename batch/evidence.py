"""Says of the records that force a recomputation where they stand, and what of a table each can have changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from tables.columns import LATE_BY_MS, OFFSET, PARTITION
from tables.declaration import Table, Topic
from tables.evidence import Evidence
from tables.plain import plain
from tables.scope import Interval, epoch_ms, time_column


def evidence_of(table: Table, source: Topic, rows: pa.Table) -> list[Evidence]:
    """The records behind rows of an events table that force a recomputation of the table."""
    return [
        Evidence(
            source=source.full_name,
            partition=row[PARTITION],
            offset=row[OFFSET],
            late_by_ms=row[LATE_BY_MS],
            **touch(table, source, row),
        )
        for row in rows.to_pylist()
    ]


def touch(table: Table, source: Topic | Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """What of the table a row of an input can change: the facts of `Evidence` that say so."""
    time, lookback = time_column(source), table.lookback_ms
    value = row.get(time) if time else None
    at = epoch_ms(_time(value))
    around = None if at is None or lookback is None else Interval(at, at + 1).widened(lookback)
    return {
        "event_ms": at,
        "scope": {column: plain(row[column]) for column in table.recompute_by if column in row},
        "start_ms": around and around.start,
        "end_ms": around and around.end,
    }


def _time(value: Any) -> datetime | date | None:
    """A time as it stands in a row, or in JSON."""
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    return datetime.fromisoformat(value) if "T" in value else date.fromisoformat(value)
