"""Recomputes a range of a table from its inputs and publishes the difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from twofold.batch.ledgers.batch_run import Run
from twofold.batch.ledgers.run_result import Cause, RunResult
from twofold.batch.pinned_versions import Pinned
from twofold.infra import COMMAND
from twofold.infra.delta.delta_writer import Written
from twofold.infra.delta.file_statistics import bounds_of
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument
from twofold.infra.instants import Interval, epoch_ms, from_epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.refresh.acceptance import accept, accepted_code, code_today, require_one_definition
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.scope import Scope


def backfill_range(table: Table, start: datetime | None, end: datetime | None) -> Interval | None:
    """Validates the requested range of a table's rows; None: all rows.

    Args:
        start, end: UTC; a time without a zone is taken as UTC; None, both: all rows.

    Raises:
        BadArgument: one of the two is missing, they are no range, or the table declares no `event_time`.
    """
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise BadArgument("One end of the range is missing.", hint="Give --start and --end, or neither: all rows.")
    if table.event_time is None:
        raise BadArgument(
            f"{table.full_name} declares no event_time, so its rows have no range to backfill.",
            hint=f"`{COMMAND} backfill {table.name}` recomputes all of it.",
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


def recompute(platform: Platform, table: Table, interval: Interval | None, *, accepts: bool = False) -> RunResult:
    """Recomputes the rows dated within the interval, or all for None, and publishes the difference: a backfill.

    Open rows are left to the stream. A second run changes nothing. A backfill of all rows accepts a new definition of
    the table: the cause is then `definition`, and its stream starts again; if the columns change, all rows are
    replaced.

    Args:
        accepts: accept a new definition even if the interval leaves rows of the old one; for previews only.

    Raises:
        BadArgument: the table has no row in the interval, and should have none.
        DefinitionChanged: an interval of a table whose rows were computed by another definition.
        QualityFailed: a recomputed row breaks the table's rules; nothing was published.
    """
    lake, registry = platform.lake, platform.registry
    if interval is not None and not accepts:
        require_one_definition(lake, table, registry)
    pinned, fact, now = Pinned(platform, table), accepted_code(lake, table.full_name), code_today(table, registry)
    has_other_columns = (interval is None or accepts) and pinned.refresher({}).has_other_columns
    is_same = (fact is None or fact.is_of(now.code, whole=True)) and not has_other_columns
    cause: Cause = "backfill" if is_same else "definition"
    run = Run(lake, pinned.ledgers, table, cause)
    scopes = [Scope(tuple(... for _ in table.recompute_by), interval)]
    begun = replace(now, through={})
    if not is_same:  # old code is out, and its last row is read
        accept(lake, table.full_name, begun, info=run.info)
        pinned = Pinned(platform, table)
    refresher = pinned.refresher({})
    if has_other_columns:
        written = refresher.replace(run.info)
    elif pinned.is_open:
        written = Written()
    else:
        is_part = interval is not None and pinned.is_guess  # a stream that begins still writes all of the table
        refreshed = refresher.publish(scopes, {**run.info, **({"watermark_ms": None} if is_part else {})}, check=True)
        written = refreshed.written
    if not is_same:
        info = {**run.info, "watermark_ms": pinned.watermark_ms}
        accept(lake, table.full_name, now, instead_of=begun, info=info)
    compared = refresher.live_rows(scopes) + written.deleted
    outcome = run.end(written, keep=cause == "definition" and not accepts, scopes=1, compared=compared)
    if interval is not None and not compared and not accepts:
        raise _nothing_there(platform.lake, table, interval, pinned.watermark_ms)
    return outcome


def _nothing_there(lake: Lake, table: Table, interval: Interval, watermark_ms: int | None) -> BadArgument:
    first, last = from_epoch_ms(interval.start), from_epoch_ms(interval.end)
    oldest, newest = bounds_of(lake.open(table.full_name), str(table.event_time))
    are = "has no rows" if oldest is None else f"has rows dated {oldest} to {newest}"
    still = f"; those that close after {from_epoch_ms(watermark_ms)} are still the stream's" if watermark_ms else ""
    return BadArgument(
        f"No row was compared: {table.full_name} {are}{still}, and by its function there is none in "
        f"[{first:%Y-%m-%dT%H:%M:%S}, {last:%Y-%m-%dT%H:%M:%S}).",
        hint="Times are UTC; the range goes by the column " + f"{table.event_time}.",
    )
