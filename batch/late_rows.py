"""Counts ingested records that a table may lack because its stream dropped them as late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from twofold.batch.ledgers.reconcile_position import ReconcilePosition, reconcile_positions, splits
from twofold.infra.delta.change_feed import changes_between, columns_in
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.streaming_checkpoint import GONE, Checkpoint


@dataclass(frozen=True, kw_only=True)
class Late:
    """Late records that a version of a table may lack, although its stream has read them.

    Attributes:
        table: the table whose stream may have dropped them; the table itself, or one upstream.
        records: the number of late records of `topic` that no reconcile of that version has checked.
        dropped: the number of late records that are left out by declaration.
        waiting: the number of scopes that a reconcile has left until they close.
    """

    table: str
    topic: str
    records: int = 0
    dropped: int = 0
    waiting: int = 0

    @property
    def fault(self) -> str:
        """The records that may be missing, for people; empty if there are none."""
        reasons = (
            [f"{self.records} late records of {self.topic} that no reconcile has looked at"] if self.records else []
        )
        reasons += [f"what was late for {self.waiting} groups of rows that are still open"] if self.waiting else []
        return f"{self.table} may lack {' and '.join(reasons)}" if reasons else ""


def late_rows(lake: Lake, registry: Registry, table: Table, taken: Mapping[str, int]) -> list[Late]:
    """Returns the late records that the table, and each table upstream of it, may lack.

    Args:
        taken: topic or table -> the version that was read; includes the table itself.
    """
    positions = reconcile_positions(lake)
    late: dict[tuple[str, str], Late] = {}
    for above in registry.above(table).tables.values():
        if above.full_name not in taken or not above.closes_at:
            continue
        standing = _of_version(lake, above, positions.get(above.full_name), taken[above.full_name])
        for source in registry.upstream(above):
            if isinstance(source, Topic) and source.full_name in taken:
                late[above.full_name, source.full_name] = _late(lake, above, source, standing, taken[source.full_name])
    return list(late.values())


def _of_version(lake: Lake, table: Table, standing: ReconcilePosition | None, version: int) -> ReconcilePosition | None:
    """Returns the position, unless it is of a newer version of the table or of another stream."""
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
        if GONE < version <= through
    ]
    rows = pa.concat_tables([part.select(columns) for part in parts])
    count = len(rows.group_by(columns).aggregate([]))
    waiting = len(standing.pending) if standing else 0
    if drops:
        return Late(table=table.full_name, topic=name, dropped=count)
    return Late(table=table.full_name, topic=name, records=count, waiting=waiting)


@dataclass(frozen=True)
class Missed:
    """Rows of an events table that streams may have missed.

    Attributes:
        late: rows whose `_late_by_ms` is at least the delay; they include every row that the watermark dropped.
        replayed: old and new rows of replays and of other commits that streams skip.
        is_cleaned: commits of that time are gone. Both then hold a superset of these rows, as far as they still exist;
            rows that a replay removed or replaced are unknown.
    """

    late: pa.Table
    replayed: pa.Table
    is_cleaned: bool = False


def missed_by_streams(
    lake: Lake, name: str, after: int, through: int, columns: Sequence[str], late_from_ms: int | None
) -> Missed:
    """Returns the records of versions `(after, through]` that streams with this watermark delay may have missed.

    Args:
        late_from_ms: the delay; None: the stream drops nothing.

    Returns:
        Tables of `columns`, one row per change. Files whose statistics exclude late rows are not opened.
    """
    schema = columns_in(lake.open(name), columns)
    try:
        return _missed(lake, name, [c for c in lake.commits(name, after, through) if c.changes], schema, late_from_ms)
    except FileNotFoundError:
        late = "false" if late_from_ms is None else f"{LATE_BY_MS} >= {late_from_ms}"
        table = lake.open(name)
        return Missed(select(table, schema.names, late), select(table, schema.names, REPLAYED), is_cleaned=True)


def late_within_commit(
    lake: Lake, name: str, version: int, columns: Sequence[str], event_time: str, late_from_ms: int
) -> pa.Table:
    """Returns the rows of one commit that are late relative to other rows of the same commit.

    `_late_by_ms` compares only with earlier commits; a stream that read a commit in parts may have dropped these rows.
    """
    table = lake.open(name)
    rows = changes_between(table, name, version, version, columns_in(table, columns))
    times = rows[event_time].cast(pa.int64())
    newest = pc.max(times)
    return rows.filter(pc.greater_equal(pc.subtract(newest, times), late_from_ms * 1_000))


def _missed(
    lake: Lake, name: str, commits: Sequence[LoggedCommit], schema: pa.Schema, late_from_ms: int | None
) -> Missed:
    skipped = [c for c in commits if c.rewrites or c.info.get("cause") == "replay"]
    appends = [c for c in commits if c not in skipped]
    empty = schema.empty_table()
    return Missed(
        late=empty if late_from_ms is None else _late_rows(lake, name, appends, schema, late_from_ms),
        replayed=pa.concat_tables(
            [empty, *(changes_between(lake.open(name), name, c.version, c.version, schema) for c in skipped)]
        ),
    )


def _late_rows(
    lake: Lake, name: str, appends: Sequence[LoggedCommit], schema: pa.Schema, late_from_ms: int
) -> pa.Table:
    import pyarrow.dataset as ds

    def may_hold(greatest: object) -> bool:
        return not isinstance(greatest, int) or greatest >= late_from_ms

    paths = [
        f"{lake.uri(name)}/{added.path}"
        for commit in appends
        for added in commit.added
        if may_hold(added.greatest.get(LATE_BY_MS))
    ]
    if not paths:
        return schema.empty_table()
    files = ds.dataset(paths, format="parquet", schema=_with(schema, pa.field(LATE_BY_MS, pa.int64())))
    return files.to_table(columns=schema.names, filter=ds.field(LATE_BY_MS) >= late_from_ms).cast(schema)


def _with(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    return schema if field.name in schema.names else schema.append(field)
