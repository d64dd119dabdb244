"""The records that force a recomputation, and which rows each can have changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tables.declaration import Table
from tables.plain import plain
from tables.scope import epoch_ms

RECORD = pa.struct(
    [("source", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("late_by_ms", pa.int64())]
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A record that forced a recomputation: where in which log it stands, how late it was, what it can have changed.

    Attributes:
        source: the topic; or the table above, where its change has no record that forced it.
        event_ms: when the changed input row happened.
        scope: `recompute_by` column -> value, as JSON can hold it; a column that is not named may have any.
        start_ms, end_ms: the rows that it can have changed are dated `[start_ms, end_ms)`; None: any time.
    """

    source: str
    partition: int | None = None
    offset: int | None = None
    late_by_ms: int | None = None
    event_ms: int | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)
    start_ms: int | None = None
    end_ms: int | None = None

    def holds(self, row: Mapping[str, Any], first_ms: int | None, last_ms: int | None) -> bool:
        """Whether it can have changed a row (in JSON's form) that covers this time."""
        return all(row.get(column) == value for column, value in self.scope.items()) and self.meets(first_ms, last_ms)

    def meets(self, first_ms: int | None, last_ms: int | None) -> bool:
        """Whether it can have changed rows of this time."""
        if None in (self.start_ms, self.end_ms, first_ms, last_ms):
            return True
        return bool(first_ms < self.end_ms and last_ms >= self.start_ms)  # type: ignore[operator]


def is_held(table: Table, row: Mapping[str, Any], evidence: Evidence) -> bool:
    """Whether the record can have changed this row of the table."""
    return evidence.holds({c: plain(row[c]) for c in evidence.scope if c in row}, *_span(table, row))


def _span(table: Table, row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The time that a row covers."""
    first = epoch_ms(row[table.event_time]) if table.event_time else None
    return first, epoch_ms(row[table.ends_at]) if table.ends_at else first


class Forced:
    """Finds the records of a run that can have changed a row, without a look at each of them for each row."""

    def __init__(self, table: Table, evidence: Iterable[Evidence]) -> None:
        self._table = table
        self._by_scope: dict[tuple[tuple[str, ...], str], list[Evidence]] = defaultdict(list)
        for e in evidence:
            columns = tuple(sorted(e.scope))
            self._by_scope[columns, json.dumps([e.scope[c] for c in columns])].append(e)
        self._columns = {columns for columns, _ in self._by_scope}

    def of(self, row: Mapping[str, Any]) -> Iterator[Evidence]:
        """Those that can have changed this row of the table."""
        span = _span(self._table, row)
        for columns in self._columns:
            known = self._by_scope.get((columns, json.dumps([plain(row[c]) for c in columns])), ())
            yield from (e for e in known if e.meets(*span))


def records(evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
    """The records themselves, each once, in the order of their logs."""
    found = {(e.source, e.partition, e.offset): e for e in evidence}
    names = [RECORD.field(n).name for n in range(RECORD.num_fields)]
    ordered = sorted(found.values(), key=lambda e: (e.source, e.partition or 0, e.offset or 0))
    return [{name: getattr(e, name) for name in names} for e in ordered]
