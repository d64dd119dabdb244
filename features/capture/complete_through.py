"""Finds the newest mark in the captured database's log before which tables have every change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from twofold.features.capture.captured_table import Capture
from twofold.features.capture.lost_changes import changes_fault
from twofold.features.capture.snapshot_deletions import deletions
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.duckdb_session import query
from twofold.infra.encodings.record_format import MARK
from twofold.infra.errors import BadArgument, CaptureFailed
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.rewound import next_versions
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold_algebra.sql.names import DATAFUSION

_NEWEST = """
    SELECT cdc_snapshot AS snapshot, coalesce(max(cdc_commit_lsn) FILTER (cdc_lsn = 0), 0) AS since
    FROM rows GROUP BY cdc_snapshot ORDER BY cdc_snapshot DESC LIMIT 1
"""


@dataclass(frozen=True, order=True)
class Mark:
    """A position in the database's log.

    Attributes:
        lsn: changes committed before it precede it in every topic captured from the database.
        at: the database's time when it was written.
    """

    lsn: int
    at: datetime


def complete_through(lake: Lake, registry: Registry, tables: Sequence[Table]) -> Mark:
    """Returns the newest mark that all these tables have passed: they have every change committed before it.

    Args:
        tables: tables that read only topics of `changes_of`.

    Raises:
        BadArgument: a table does not read changes alone.
        CaptureFailed: a table lacks changes, or has not passed a mark since its snapshot. Names it, and the remedy.
    """
    common: set[Mark] | None = None
    for table in tables:
        following = next_versions(lake, registry, table, Checkpoint.of_table(lake.settings, table))
        for number, topic in enumerate(_changes(registry, table)):
            marks = _of_topic(lake, topic, table, following[number] - 1 if following else -1)
            common = marks if common is None else common & marks
    if not common:
        raise CaptureFailed(
            f"{', '.join(table.full_name for table in tables)} have met no mark in common since their snapshots.",
            hint="One is written each minute at least while the captures run. After the database was restored, "
            f"`{COMMAND} status` shows which captures are still of the time before.",
        )
    return max(common)


def _changes(registry: Registry, table: Table) -> list[Topic]:
    sources = registry.upstream(table)
    with_marks = [source for source in sources if isinstance(source, Topic) and source.has_marks]
    if len(with_marks) < len(sources):
        other = next(source.full_name for source in sources if source not in with_marks)
        raise BadArgument(
            f"{table.full_name} reads {other}, which is no topic of changes.",
            hint="Expected tables that read topics declared by changes_of, and nothing else.",
        )
    return with_marks


def _of_topic(lake: Lake, topic: Topic, table: Table, version: int) -> set[Mark]:
    """Returns the marks since the newest snapshot among the changes that the table has read.

    A restored database repeats positions of marks, but with other times.

    Args:
        version: of the topic, up to which the table has read it; -1: none.
    """
    name = topic.full_name
    fault = changes_fault(lake, name)
    if fault:
        raise CaptureFailed(f"{name}: {fault}.", topic=name)
    if version < 0:
        raise CaptureFailed(
            f"{table.full_name} has not taken changes yet.", hint=f"`{COMMAND} up` starts its stream.", topic=name
        )
    changes = lake.open(name, version)
    of_snapshots = changes.scan(
        columns=["cdc_snapshot", "cdc_commit_lsn", "cdc_lsn"], predicate=f"{OFFSET} IS NOT NULL AND cdc_snapshot > 0"
    )
    [newest] = query(_NEWEST, rows=of_snapshots).to_pylist() or [{"snapshot": 1, "since": 0}]
    predicate = (
        f"cdc_op = {DATAFUSION.literal(MARK)} AND cdc_snapshot = {newest['snapshot']} AND cdc_lsn > {newest['since']}"
    )
    marks = pa.table(changes.scan(columns=["cdc_lsn", "cdc_at"], predicate=predicate))
    if not len(marks):
        raise CaptureFailed(
            f"{table.full_name} has met no mark since the newest snapshot of {topic.captures}.",
            hint=f"One is written each minute at least while the captures run: see `{COMMAND} status`.",
            topic=name,
        )
    capture = Capture(topic=name, table=topic.captures or "", snapshot=newest["snapshot"])
    if capture.snapshot > 1 and any(True for _ in deletions(lake, topic, capture, version)):
        raise CaptureFailed(
            f"{table.full_name} still has rows that are gone: the recapture of {topic.captures} is not finished.",
            hint=f"`{COMMAND} recapture {name}` continues.",
            topic=name,
        )
    return {Mark(row["cdc_lsn"], row["cdc_at"]) for row in marks.to_pylist()}
