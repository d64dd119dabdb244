"""Finds the rows that each late record may affect, with the record's position in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from twofold.batch.ledgers.causes import CausingRecord
from twofold.infra.instants import Interval, epoch_ms
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.json_values import to_plain_json
from twofold.tables.refresh.scope_expressions import scope_values_in

_AT_ONCE = 10_000  # rows that are objects at the same time


def causes_of(table: Table, source: Topic, rows: pa.Table) -> list[CausingRecord]:
    """Returns the causing records of rows in an events table, with the rows of the table that they may affect."""
    scopes: dict[str, Mapping[str, Any]] = {}  # one object for all records that touch the same

    def cause_of(row: Mapping[str, Any]) -> CausingRecord:
        facts = touch(table, source, row)
        facts["scope"] = scopes.setdefault(json.dumps(facts["scope"]), facts["scope"])
        return CausingRecord(
            source=source.full_name, partition=row[PARTITION], offset=row[OFFSET], late_by_ms=row[LATE_BY_MS], **facts
        )

    return [cause_of(row) for batch in rows.to_batches(max_chunksize=_AT_ONCE) for row in batch.to_pylist()]


def touch(table: Table, source: Topic | Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of the table that a row of an input may affect, as fields of `CausingRecord`."""
    time, within = source.event_time, table.depends_within_ms
    value = row.get(time) if time else None
    at = epoch_ms(_time(value))
    around = None if at is None or within is None else Interval(at, at + 1).widened(within)
    return {
        "event_ms": at,
        "scope": {c: to_plain_json(row[name]) for c, name in scope_values_in(table, source, row.keys()).items()},
        "start_ms": around and around.start,
        "end_ms": around and around.end,
    }


def times_of(table: Table, row: Mapping[str, Any]) -> dict[str, datetime | date | None]:
    """Returns the start and end time of a row of the table in JSON form, by column."""
    return {column: _time(row[column]) for column in (table.event_time, table.ends_at) if column}


def _time(value: Any) -> datetime | date | None:
    """Parses a time of a row, or of its JSON form."""
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    return datetime.fromisoformat(value) if "T" in value else date.fromisoformat(value)
