"""How far tables of changes show the captured database: the newest mark before which they have every change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.capture.captured_table import Capture
from infra.duckdb_session import query
from infra.errors import BadArgument, CaptureFailed
from tables.engine.capture.lost_changes import changes_fault
from tables.engine.capture.snapshot_deletions import deletions
from tables.engine.declarations.declaration import Table, Topic
from tables.engine.declarations.registry import Registry
from tables.engine.delta.lake import Lake
from tables.engine.events.metadata_columns import OFFSET
from tables.engine.refresh.streaming_checkpoint import Checkpoint

_NEWEST = f"""
    SELECT
        cdc_snapshot AS snapshot,
        max(cdc_commit_lsn) FILTER (cdc_lsn = 0) AS since,
        max(cdc_lsn) FILTER (cdc_op = 'mark') AS lsn,
        arg_max(cdc_at, cdc_lsn) FILTER (cdc_op = 'mark') AS at
    FROM rows WHERE {OFFSET} IS NOT NULL AND cdc_snapshot > 0
    GROUP BY cdc_snapshot ORDER BY cdc_snapshot DESC LIMIT 1
"""


@dataclass(frozen=True, order=True)
class Mark:
    """A place in the database's log.

    Attributes:
        lsn: what was committed before it is before it in every topic that is captured from the database.
        at: the database's time when it was written.
    """

    lsn: int
    at: datetime


def complete_through(lake: Lake, registry: Registry, tables: Sequence[Table]) -> Mark:
    """The newest mark that all these tables have passed: they hold every change that was committed before it.

    Args:
        tables: such as read topics of `changes_of`, and no other tables.

    Raises:
        BadArgument: a table does not read changes alone.
        CaptureFailed: a table lacks changes, or has not passed a mark since its snapshot. Says which, and what to do.
    """
    marks = [_of_topic(lake, topic, table, n) for table in tables for n, topic in enumerate(_changes(registry, table))]
    first = min(marks)
    if first.at > min(mark.at for mark in marks):
        raise CaptureFailed(
            f"The log of the database went back: LSN {first.lsn} is of {first.at}, later than a mark of another table.",
            hint="The database was restored. `./twofold status` shows which captures are still of the time before.",
        )
    return first


def _changes(registry: Registry, table: Table) -> list[Topic]:
    sources = registry.upstream(table)
    found = [source for source in sources if isinstance(source, Topic) and source.encoding == "debezium"]
    if len(found) < len(sources):
        other = next(source.full_name for source in sources if source not in found)
        raise BadArgument(
            f"{table.full_name} reads {other}, which is no topic of changes.",
            hint="Expected tables that read topics declared by changes_of, and nothing else.",
        )
    return found


def _of_topic(lake: Lake, topic: Topic, table: Table, number: int) -> Mark:
    """The newest mark of the changes that the table has taken.

    Args:
        number: of the topic among the table's inputs.
    """
    name = topic.full_name
    fault = changes_fault(lake, name)
    if fault:
        raise CaptureFailed(f"{name}: {fault}.", topic=name)
    position = Checkpoint.of_table(lake.settings, table).next_versions()
    if len(position) <= number or position[number] < 1:
        raise CaptureFailed(
            f"{table.full_name} has not taken changes yet.", hint="`./twofold up` starts its stream.", topic=name
        )
    version = position[number] - 1
    columns = ["cdc_op", "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn", "cdc_at", OFFSET]
    [*found] = query(_NEWEST, rows=lake.open(name, version).scan(columns=columns)).to_pylist()
    if not found or found[0]["lsn"] is None or found[0]["lsn"] <= (found[0]["since"] or 0):
        raise CaptureFailed(
            f"{table.full_name} has met no mark since the newest snapshot of {topic.captures}.",
            hint="One is written every 10 s while the captures run: see `./twofold status`.",
            topic=name,
        )
    [newest] = found
    capture = Capture(topic=name, table=topic.captures or "", snapshot=newest["snapshot"])
    if capture.snapshot > 1 and any(True for _ in deletions(lake, topic, capture, version)):
        raise CaptureFailed(
            f"{table.full_name} still has rows that are gone: the recapture of {topic.captures} is not finished.",
            hint=f"`./twofold recapture {name}` continues.",
            topic=name,
        )
    return Mark(newest["lsn"], newest["at"])
