"""Recomputes a range of a table from its inputs and publishes what differs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from infra.errors import BadArgument
from tables.checkpoint import Checkpoint
from tables.declaration import Table
from tables.fingerprint import ACCEPTED, FINGERPRINT, fingerprint, recorded, require_one_definition
from tables.lake import Lake
from tables.ledgers import Ledgers
from tables.outcome import Cause, Outcome
from tables.refresh import Refresher, run_name
from tables.registry import load
from tables.scope import Interval, Scope, epoch_ms
from tables.setup import Platform, opened
from tables.writer import Stamp, Writer, Written

if TYPE_CHECKING:
    from infra.settings import Settings


def backfill(settings: Settings, table: str, start: datetime | None = None, end: datetime | None = None) -> Outcome:
    """Bring the table's rows dated `[start, end)`, or all of them, to what its function says of its inputs now.

    Rows that the stream still revises are left to it. Running it twice changes nothing the second time. All rows at
    once accept a new definition of the table: the cause is then `definition`, and its stream begins anew.

    Args:
        table: full or bare name; with a range it must declare `event_time`.
        start, end: UTC; a time without a zone is taken as UTC; None, both: all rows.

    Raises:
        BadArgument: before anything is touched.
        DefinitionChanged: a range of a table whose rows were computed by another definition.
        QualityFailed: a recomputed row breaks the table's rules; nothing was published.
    """
    declaration = load().find_table(table)
    interval = None if start is None and end is None else _interval(declaration, start, end)
    with opened(settings, "backfill", [declaration.domain]) as platform:
        return recompute(platform, declaration, interval)


def recompute(platform: Platform, table: Table, interval: Interval | None) -> Outcome:
    """Publish what differs among the table's rows dated within the interval, or among all for None.

    Raises:
        DefinitionChanged: a range of a table whose rows were computed by another definition.
        QualityFailed: a recomputed row breaks the table's rules; nothing was published.
    """
    began = time.monotonic()
    lake, name = platform.lake, table.full_name
    if interval is not None:
        require_one_definition(lake, table)
    cause: Cause = "backfill" if recorded(lake, table) in (None, fingerprint(table)) else "definition"
    run = run_name(cause)
    info = {"cause": cause, "run": run}
    checkpoint = Checkpoint.of(lake.settings, table)
    watermark_ms = checkpoint.watermark_ms() if table.closes_at else None
    version = lake.version(name)
    scope = Scope(tuple(... for _ in table.recompute_by), interval)
    if table.closes_at and watermark_ms is None and checkpoint.stream:
        written = Written()  # every row is still the stream's
    else:
        refresher = Refresher(platform.spark, lake, platform.registry, table, watermark_ms)
        written = refresher.publish([scope], info, check=True)
    if cause == "definition":
        accept_definition(lake, table, {**info, "watermark_ms": watermark_ms})
    ledgers = Ledgers(lake, platform.spark)
    ledgers.record_corrections(table)
    outcome = Outcome(table=name, cause=cause, run=run, scopes=1, seconds=time.monotonic() - began)
    outcome = outcome.publishing(written, version)
    if outcome.changed or cause == "definition":
        ledgers.record_run(outcome, None, fingerprint(table))
    return outcome


def accept_definition(lake: Lake, table: Table, info: Mapping[str, object]) -> None:
    """Note in a commit without rows that those that are there are right by today's definition, where none says so."""
    now = fingerprint(table)
    if recorded(lake, table) != now:
        writer = Writer(lake, table.full_name)
        rows = pa.schema(writer.newest().schema()).empty_table()
        stamp = Stamp(app=ACCEPTED, version=writer.next_number(ACCEPTED), info={**info, FINGERPRINT: now})
        writer.append(rows, stamp)


def _interval(table: Table, start: datetime | None, end: datetime | None) -> Interval:
    if start is None or end is None:
        raise BadArgument("One end of the range is missing.", hint="Give --start and --end, or neither: all rows.")
    if table.event_time is None:
        raise BadArgument(
            f"{table.full_name} declares no event_time, so its rows have no range to backfill.",
            hint=f"`./twofold backfill {table.name}` recomputes all of it.",
        )
    start, end = (t.replace(tzinfo=UTC) if t.tzinfo is None else t for t in (start, end))
    if start >= end:
        raise BadArgument(
            f"start={start.isoformat()} is not before end={end.isoformat()}.",
            hint="The range is half-open: [start, end).",
        )
    first, last = epoch_ms(start), epoch_ms(end)
    if first is None or last is None:  # a datetime always has one
        raise BadArgument("start and end are needed.")
    return Interval(first, last)
