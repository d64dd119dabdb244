"""Recomputes a range of a table from its inputs and publishes what differs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.errors import BadArgument
from tables.checkpoint import Checkpoint
from tables.declaration import Table
from tables.derive import fingerprint
from tables.ledgers import Ledgers
from tables.outcome import Outcome
from tables.refresh import Refresher, run_name
from tables.registry import load
from tables.scope import Interval, Scope, epoch_ms
from tables.setup import Platform, opened

if TYPE_CHECKING:
    from infra.settings import Settings


def backfill(settings: Settings, table: str, start: datetime, end: datetime) -> Outcome:
    """Bring the table's rows dated `[start, end)` to what its function says of its inputs now.

    Rows that the stream still revises are left to it. Running it twice changes nothing the second time.

    Args:
        table: full or bare name; it must declare `event_time`.
        start, end: UTC; a time without a zone is taken as UTC.

    Raises:
        BadArgument: before anything is touched.
        QualityFailed: a recomputed row breaks the table's rules; nothing was published.
    """
    declaration = load().find_table(table)
    interval = _interval(declaration, start, end)
    with opened(settings, "backfill", [declaration.domain]) as platform:
        return recompute(platform, declaration, interval)


def recompute(platform: Platform, table: Table, interval: Interval) -> Outcome:
    """Publish what differs among the table's rows dated within the interval.

    Raises:
        QualityFailed: a recomputed row breaks the table's rules; nothing was published.
    """
    began = time.monotonic()
    run = run_name("backfill")
    lake, name = platform.lake, table.full_name
    checkpoint = Checkpoint.of(lake.settings, table)
    watermark_ms = checkpoint.watermark_ms() if table.closes_at else None
    refresher = Refresher(platform.spark, lake, platform.registry, table, watermark_ms)
    version = lake.version(name)
    scope = Scope(tuple(... for _ in table.recompute_by), interval)
    written = refresher.publish([scope], {"cause": "backfill", "run": run}, check=True)
    ledgers = Ledgers(lake, platform.spark)
    ledgers.record_corrections(name, table.key)
    outcome = Outcome(table=name, cause="backfill", run=run, scopes=1, seconds=time.monotonic() - began)
    outcome = outcome.publishing(written, version)
    if outcome.changed:
        ledgers.record_run(outcome, None, fingerprint(table))
    return outcome


def _interval(table: Table, start: datetime, end: datetime) -> Interval:
    if table.event_time is None:
        raise BadArgument(
            f"{table.full_name} declares no event_time, so its rows have no range to backfill.",
            hint=f"`./twofold reconcile {table.name} --verify` recomputes all of it.",
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
