"""Lists the records that were too late for a table's stream, and the corrections that each of them caused."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from twofold.batch.ledgers.causes import CausingRecord, Changed, ChangedRows, span_of
from twofold.batch.ledgers.find_causes import times_of
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import started_at
from twofold.batch.pinned_versions import Pinned
from twofold.infra.instants import from_epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import to_plain_json
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.scope import Scope

Fate = Literal["corrected", "changed nothing", "dropped", "waits", "not looked at yet"]


@dataclass(frozen=True, kw_only=True)
class LateRecord:
    """A record that may have come too late for the stream.

    Attributes:
        fate: `corrected`: rows were published because of it; `changed nothing`: they were right; `dropped`: by
            declaration it is only counted; `waits`: for rows that the stream still revises; `not looked at yet`: left
            to the next reconcile.
        runs: that checked it.
        rows: keys of the rows that were corrected because of it.
    """

    source: str
    partition: int | None
    offset: int | None
    late_by_ms: int | None
    event_at: datetime | None
    fate: Fate
    runs: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any]] = ()


def late_records(platform: Platform, table: Table, since: datetime | None = None) -> list[LateRecord]:
    """Returns every record that forced, or will force, a check of the table, by topic, partition and offset.

    Args:
        since: leave out records that only earlier runs checked.
    """
    ledgers = Ledgers(platform.lake)
    pending = ledgers.position(table.full_name).pending
    corrected, more = _corrected(ledgers, table)
    seen: dict[tuple[Any, ...], list[tuple[str, CausingRecord]]] = {}
    for run, e in ledgers.evidence(table.full_name):
        if since is None or (started_at(run) or since) >= since:
            seen.setdefault((e.source, e.partition, e.offset), []).append((run, e))
    records = []
    for place, looks in seen.items():
        keys = {key for run, e in looks if run in more for key in more[run].keys_of(e)}
        rows = list({**corrected.get(place, {}), **{key: json.loads(key) for key in keys}}.values())
        evidence = [e for _, e in looks]
        fate: Fate = "corrected" if rows else "changed nothing"
        if not rows and table.late == "drop" and looks[0][0].startswith("late-"):
            fate = "dropped"
        elif not rows and any(_waits(table, scope, e) for scope in pending for e in evidence):
            fate = "waits"
        records.append(_record(evidence[0], fate, [run for run, _ in looks], rows))
    pinned = Pinned(platform, table)
    for e in (e for touched in pinned.touched(pinned.before()) for e in touched.evidence):
        if (e.source, e.partition, e.offset) not in seen:
            records.append(_record(e, "not looked at yet"))
    return sorted(records, key=lambda r: (r.source, r.partition or 0, r.offset or 0))


def _record(
    e: CausingRecord, fate: Fate, runs: Sequence[str] = (), rows: Sequence[Mapping[str, Any]] = ()
) -> LateRecord:
    return LateRecord(
        source=e.source,
        partition=e.partition,
        offset=e.offset,
        late_by_ms=e.late_by_ms,
        event_at=None if e.event_ms is None else from_epoch_ms(e.event_ms),
        fate=fate,
        runs=list(dict.fromkeys(runs)),
        rows=rows,
    )


def _corrected(
    ledgers: Ledgers, table: Table
) -> tuple[dict[tuple[Any, ...], dict[str, Mapping[str, Any]]], dict[str, ChangedRows]]:
    """Maps the place of each late record to the rows that were corrected because of it, by key.

    Returns:
        Also, by run, the rows of corrections that name only the first of many records.
    """
    corrected: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    more: dict[str, list[Changed]] = defaultdict(list)
    for correction in ledgers.corrections(table.full_name):
        key, named = correction["key"], correction["evidence"] or ()
        for record in named:
            place = (record["source"], record["partition"], record["offset"])
            corrected.setdefault(place, {})[key] = json.loads(key)
        if (correction["records"] or 0) > len(named):
            sides = [json.loads(correction[side]) for side in ("before", "after") if correction[side]]
            more[correction["run"]] += [Changed(key, row, *span_of(table, times_of(table, row))) for row in sides]
    return corrected, {run: ChangedRows(rows) for run, rows in more.items()}


def _waits(table: Table, scope: Scope, e: CausingRecord) -> bool:
    """Whether a pending scope has rows that the record can have changed."""
    named = zip(table.recompute_by, scope.values, strict=True)
    if any(
        value is not ... and column in e.scope and e.scope[column] != to_plain_json(value) for column, value in named
    ):
        return False
    if scope.interval is None or e.start_ms is None or e.end_ms is None:
        return True
    return scope.interval.start < e.end_ms and e.start_ms < scope.interval.end


def counts(records: Sequence[LateRecord]) -> Iterator[tuple[Fate, int]]:
    """Yields the number of records of each fate, without fates that have none."""
    for fate in get_args(Fate):
        if number := sum(record.fate == fate for record in records):
            yield fate, number
