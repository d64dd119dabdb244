"""The rows of a table that only a correction for late records made right: by week, size and lateness."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

from twofold.batch.ledgers.run_ledgers import CORRECTIONS
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake
from twofold.infra.instants import epoch_ms
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold_algebra.sql.names import DATAFUSION

Size = Literal["missing", "extra", "over 10 %", "1 to 10 %", "under 1 %", "other"]
SIZES: tuple[Size, ...] = ("missing", "extra", "over 10 %", "1 to 10 %", "under 1 %", "other")
"""How wrong a row would be: not there, there in error, by its most changed number, or in what is no number."""
LATE = "late"
_COLUMNS = (
    "key",
    "change",
    "before",
    "after",
    "cause",
    "run",
    "version",
    "recorded_at",
    "evidence",
    "records",
    "latest_ms",
)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A row that a batch run corrected.

    Attributes:
        key: of the row; `before`, `after`: the row's values, None for none.
        records: the records that forced it, as far as they are named; `count`: all of them.
        latest_ms: as the ledger has it; None also of one that was written before it had the column.
    """

    key: Mapping[str, Any]
    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    cause: str
    run: str
    version: int
    at: datetime
    records: Sequence[Mapping[str, Any]]
    count: int
    latest_ms: int | None = None

    @property
    def late_by_ms(self) -> int | None:
        """The greatest lateness of its records, milliseconds; None if one of them is not known."""
        if self.latest_ms is not None:
            return self.latest_ms
        lateness = [record["late_by_ms"] for record in self.records]
        known = [ms for ms in lateness if ms is not None]
        return max(known) if known and len(known) == self.count else None

    @property
    def changed(self) -> list[str]:
        """The columns whose values differ; of a row that was added or removed all but the key."""
        before, after = self.before or {}, self.after or {}
        columns = dict.fromkeys([*before, *after])
        return [c for c in columns if c not in self.key and before.get(c) != after.get(c)]

    @property
    def size(self) -> Size:
        """How wrong the row would be without it."""
        if self.before is None or self.after is None:
            return "missing" if self.before is None else "extra"
        errors = [_error(self.before.get(c), self.after.get(c)) for c in self.changed]
        numbers = [error for error in errors if error is not None]
        if not numbers:
            return "other"
        return "over 10 %" if max(numbers) > 0.1 else "1 to 10 %" if max(numbers) >= 0.01 else "under 1 %"


@dataclass(frozen=True)
class LateCost:
    """The rows of a table that late records would have left wrong.

    Attributes:
        weeks: Monday of a week -> size -> corrected rows, every week of the time.
        lateness_ms: of each row the greatest lateness of its records, None if it is not known.
        upstream: rows corrected because an input was, which are not among the others.
    """

    weeks: Mapping[date, Mapping[Size, int]]
    lateness_ms: Sequence[int | None]
    upstream: int

    @property
    def rows(self) -> int:
        return len(self.lateness_ms)

    def rows_of(self, *sizes: Size) -> int:
        """Counts the rows that would be wrong by one of these sizes."""
        return sum(counts.get(size, 0) for counts in self.weeks.values() for size in sizes)

    def still_wrong(self, delay_ms: int) -> int:
        """Counts the rows that a stream which waits for so long would have left wrong, at most.

        A row counts as saved if all its records were less late than that.
        """
        return sum(ms is None or ms >= delay_ms for ms in self.lateness_ms)


def corrections_of(lake: Lake, table: str, since: datetime, until: datetime) -> list[Correction]:
    """Returns the corrections of a table in `[since, until)`, oldest first; none if there is no ledger."""
    if not lake.exists(CORRECTIONS):
        return []
    condition = f"{DATAFUSION.name('table')} = {DATAFUSION.literal(table)} AND {_recorded(since, until)}"
    ledger = lake.open(CORRECTIONS)
    there = {field.name for field in ledger.schema().fields}
    rows = select(ledger, [column for column in _COLUMNS if column in there], condition)
    return [_correction(row) for row in rows.sort_by([("version", "ascending"), ("key", "ascending")]).to_pylist()]


def late_corrections(lake: Lake, since: datetime, until: datetime) -> dict[str, int]:
    """Counts by table the rows that were corrected because of late records in `[since, until)`, the most first."""
    if not lake.exists(CORRECTIONS):
        return {}
    condition = f"cause = {DATAFUSION.literal(LATE)} AND {_recorded(since, until)}"
    rows = select(lake.open(CORRECTIONS), ["table"], condition)
    return dict(Counter(rows["table"].to_pylist()).most_common())


def late_cost(corrections: Sequence[Correction], since: datetime, until: datetime) -> LateCost:
    """Summarizes the corrections that late records caused.

    Args:
        since, until: the weeks that are listed, those without a correction too.
    """
    first, last = _monday(since), _monday(until)
    weeks = {first + timedelta(weeks=n): Counter[Size]() for n in range((last - first).days // 7 + 1)}
    late = [row for row in corrections if row.cause == LATE]
    for row in late:
        weeks.setdefault(_monday(row.at), Counter())[row.size] += 1
    return LateCost(weeks, [row.late_by_ms for row in late], sum(row.cause == "upstream" for row in corrections))


def _recorded(since: datetime, until: datetime) -> str:
    first, last = (DATAFUSION.moment(TIMESTAMP, epoch_ms(moment) or 0) for moment in (since, until))
    return f"recorded_at >= {first} AND recorded_at < {last}"


def _correction(row: Mapping[str, Any]) -> Correction:
    return Correction(
        key=json.loads(row["key"]),
        change=row["change"],
        before=json.loads(row["before"]) if row["before"] else None,
        after=json.loads(row["after"]) if row["after"] else None,
        cause=row["cause"] or "unknown",
        run=row["run"],
        version=row["version"],
        at=row["recorded_at"],
        records=row["evidence"] or [],
        count=row["records"] or 0,
        latest_ms=row.get("latest_ms"),
    )


def _error(before: Any, after: Any) -> float | None:
    """Returns the relative error of a number; None for what is none, and if it was or became null."""
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < 2:
        return None
    return abs(before - after) / abs(after) if after else math.inf


def _monday(at: datetime) -> date:
    return at.date() - timedelta(days=at.weekday())
