"""Late records that cause a recomputation, and the rows that each may affect."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from twofold.infra.instants import epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import to_plain_json

RECORD = pa.struct(
    [("source", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("late_by_ms", pa.int64())]
)
LISTED = 100
"""Records that a correction names; all of its run are in the ledger of evidence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CausingRecord:
    """A record that forced a recomputation: its position in the log, its lateness, the rows that it may affect.

    Attributes:
        source: the topic; or the table above, if no record is known for its change.
        event_ms: the event time of the changed input row.
        scope: `recompute_by` column -> value, in JSON form; other columns may have any value.
        start_ms, end_ms: the times `[start_ms, end_ms)` of the rows that it may affect; None: any time.
    """

    source: str
    partition: int | None = None
    offset: int | None = None
    late_by_ms: int | None = None
    event_ms: int | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)
    start_ms: int | None = None
    end_ms: int | None = None

    def may_affect(self, first_ms: int | None, last_ms: int | None) -> bool:
        """Whether it may have changed rows of this time."""
        if None in (self.start_ms, self.end_ms, first_ms, last_ms):
            return True
        return bool(first_ms < self.end_ms and last_ms >= self.start_ms)  # type: ignore[operator]


def is_held(table: Table, row: Mapping[str, Any], evidence: CausingRecord) -> bool:
    """Whether the record may have changed this row of the table."""
    has_values = all(to_plain_json(row.get(column)) == value for column, value in evidence.scope.items())
    return has_values and evidence.may_affect(*span_of(table, row))


def span_of(table: Table, row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Returns the first and last time that a row of the table covers, epoch milliseconds."""
    first = epoch_ms(row[table.event_time]) if table.event_time else None
    return first, epoch_ms(row[table.ends_at]) if table.ends_at else first


@dataclass(frozen=True)
class Changed:
    """A row, in JSON form, that a run has changed.

    Attributes:
        key: of its correction; the old and the new row have the same key.
        first_ms, last_ms: the time that it covers.
    """

    key: str
    row: Mapping[str, Any]
    first_ms: int | None
    last_ms: int | None


@dataclass
class Causes:
    """The records that may have changed a row.

    Attributes:
        count: the number of all of them.
        latest_ms: the greatest lateness of all of them, milliseconds; None if that of one is not known.
        records: the first of them, in the order of their logs, as in the ledger of corrections.
    """

    count: int = 0
    latest_ms: int | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    _last: tuple[Any, ...] = ()

    def add(self, e: CausingRecord) -> None:
        """Counts a record, once; calls for records of one place must follow each other."""
        place = e.source, e.partition, e.offset
        if place != self._last:
            if not self.count:
                self.latest_ms = e.late_by_ms
            elif self.latest_ms is not None:
                self.latest_ms = None if e.late_by_ms is None else max(self.latest_ms, e.late_by_ms)
            self._last, self.count = place, self.count + 1
            if len(self.records) < LISTED:
                self.records.append({RECORD.field(n).name: getattr(e, RECORD.field(n).name) for n in range(4)})


class ChangedRows:
    """Finds the rows that a record may have changed, by an index: there may be millions of records."""

    def __init__(self, rows: Iterable[Changed]) -> None:
        self._rows = list(rows)
        self._by_columns: dict[tuple[str, ...], dict[str, _Group]] = {}

    def keys_of(self, e: CausingRecord) -> set[str]:
        """Returns the keys of the rows that a record may have changed."""
        columns = tuple(e.scope)
        if columns not in self._by_columns:
            groups: dict[str, list[Changed]] = defaultdict(list)
            for changed in self._rows:
                groups[json.dumps([changed.row.get(column) for column in columns])].append(changed)
            self._by_columns[columns] = {values: _Group(rows) for values, rows in groups.items()}
        group = self._by_columns[columns].get(json.dumps(list(e.scope.values())))
        return {row.key for row in group.near(e) if e.may_affect(row.first_ms, row.last_ms)} if group else set()

    def causes(self, evidence: Iterable[CausingRecord]) -> dict[str, Causes]:
        """Returns the causes by key; the records must be in the order of their logs."""
        by_row: dict[str, Causes] = defaultdict(Causes)
        for e in evidence:
            for key in self.keys_of(e):
                by_row[key].add(e)
        return by_row


class _Group:
    """The rows of one scope, sorted by time."""

    def __init__(self, rows: Sequence[Changed]) -> None:
        dated = [(r.first_ms, r.last_ms, r) for r in rows if r.first_ms is not None and r.last_ms is not None]
        dated.sort(key=lambda one: one[0])
        self._dated = [row for *_, row in dated]
        self._undated = [row for row in rows if row.first_ms is None or row.last_ms is None]
        self._firsts = [first for first, _, _ in dated]
        self._longest = max((last - first for first, last, _ in dated), default=0)

    def near(self, e: CausingRecord) -> list[Changed]:
        """Returns a superset of the rows that overlap a record in time."""
        if e.start_ms is None or e.end_ms is None:
            return [*self._dated, *self._undated]
        first = bisect_left(self._firsts, e.start_ms - self._longest)
        return [*self._dated[first : bisect_left(self._firsts, e.end_ms)], *self._undated]
