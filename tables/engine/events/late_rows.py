"""Ingested records that a table may lack because its stream dropped them as late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from infra.errors import BadArgument
from tables.engine.declarations.declaration import Table, Topic
from tables.engine.declarations.registry import Registry
from tables.engine.delta.change_feed import late_within_commit, missed_by_streams
from tables.engine.delta.lake import Lake
from tables.engine.events.metadata_columns import OFFSET, PARTITION
from tables.engine.ledgers.reconcile_position import ReconcilePosition, reconcile_positions, splits
from tables.engine.refresh.streaming_checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Late:
    """What of the log a version of a table may lack, though its stream has read it.

    Attributes:
        table: whose stream may have dropped it; the table itself, or one that it is computed from.
        records: late records that no reconcile of that version has looked at; of which topic.
        dropped: late records that are left out by declaration.
        waiting: groups of rows that a reconcile has left until they close.
    """

    table: str
    topic: str
    records: int = 0
    dropped: int = 0
    waiting: int = 0

    @property
    def fault(self) -> str:
        """What may be missing, for people; empty when nothing is."""
        found = [f"{self.records} late records of {self.topic} that no reconcile has looked at"] if self.records else []
        found += [f"what was late for {self.waiting} groups of rows that are still open"] if self.waiting else []
        return f"{self.table} may lack {' and '.join(found)}" if found else ""


def late_rows(lake: Lake, registry: Registry, table: Table, taken: Mapping[str, int]) -> list[Late]:
    """What the table may lack, and each table that it is computed from.

    Args:
        taken: topic or table -> the version of it that is in; the table itself among them.
    """
    try:
        known = reconcile_positions(lake)
    except BadArgument:  # nothing was ever reconciled
        known = {}
    found: dict[tuple[str, str], Late] = {}
    for one in registry.above(table).tables.values():
        if one.full_name not in taken or not one.closes_at:
            continue
        standing = _of_version(lake, one, known.get(one.full_name), taken[one.full_name])
        for source in registry.upstream(one):
            if isinstance(source, Topic) and source.full_name in taken:
                found[one.full_name, source.full_name] = _late(lake, one, source, standing, taken[source.full_name])
    return list(found.values())


def _of_version(lake: Lake, table: Table, standing: ReconcilePosition | None, version: int) -> ReconcilePosition | None:
    """The standing, unless it is of a newer version of the table or of another stream."""
    if standing is None or standing.stream != Checkpoint.of_table(lake.settings, table).stream:
        return None
    return standing if standing.consumed.get(table.full_name, -1) <= version else None


def _late(lake: Lake, table: Table, topic: Topic, standing: ReconcilePosition | None, through: int) -> Late:
    name, consumed = topic.full_name, standing.consumed if standing else {}
    drops = table.late == "drop"
    after = -1 if drops else min(consumed.get(name, -1), through)
    columns = [PARTITION, OFFSET]
    parts = [missed_by_streams(lake, name, after, through, columns, table.watermark_ms).late]
    cut = Checkpoint.of_table(lake.settings, table).splits.versions_of(name)[
        0 if drops else consumed.get(splits(name), 0) :
    ]
    parts += [
        late_within_commit(lake, name, version, [*columns, topic.event_time], topic.event_time, table.watermark_ms)
        for version in dict.fromkeys(cut)
        if version <= through
    ]
    rows = pa.concat_tables([part.select(columns) for part in parts])
    count = len(rows.group_by(columns).aggregate([]))
    waiting = len(standing.pending) if standing else 0
    if drops:
        return Late(table=table.full_name, topic=name, dropped=count)
    return Late(table=table.full_name, topic=name, records=count, waiting=waiting)
