"""Reads the history of a row: each version that wrote it, with its causes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.batch.ledgers.causes import is_held
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import started_at
from twofold.infra.delta.change_feed import naming_what_is_gone, side_of
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.duckdb_session import query
from twofold.infra.instants import EPOCH, from_epoch_ms
from twofold.infra.project.project import project
from twofold.tables.declare.code_fingerprint import fingerprint
from twofold.tables.declare.table import Table
from twofold.tables.refresh.json_values import to_plain_json
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold_archive.read_plan import Archive


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a topic; only `source` if no record is known for a change of a table.

    Attributes:
        segment: the archived segment that holds it; None if there is none yet, or it was not requested.
    """

    source: str
    partition: int | None = None
    offset: int | None = None
    late_by_ms: int | None = None
    segment: str | None = None


@dataclass(frozen=True, kw_only=True)
class RowVersion:
    """One change or check of a row.

    Attributes:
        change: insert, update, delete; `none` if a run checked the row and found it right.
        by: stream, the cause of a batch run, or `unknown` for a write past the platform.
        before, after: the columns that changed; all columns of an inserted or deleted row.
        batch: the stream's micro-batch.
        inputs: input -> version that was read.
        records: the records that forced the run.
        fingerprint: of the definition that computed the row; `commit`: the last Git commit of its file by then.
        watermark: of the stream at that time; None if it had none.
    """

    version: int | None
    at: datetime
    change: str
    by: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    batch: int | None = None
    run: str | None = None
    inputs: Mapping[str, int] | None = None
    records: Sequence[Record] = ()
    fingerprint: str | None = None
    commit: str | None = None
    watermark: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The moment since when no stream changes a row: the first commit whose watermark had reached its closing time."""

    at: datetime
    version: int
    watermark: datetime


@dataclass(frozen=True, kw_only=True)
class RowHistory:
    """The known history of one row.

    Attributes:
        now: the current row; None if it does not exist.
        since: the oldest version whose commit the log still has.
        definition: fingerprint of the current declaration.
        closes_at: the watermark that closes the row; None if no row of the table closes.
        closed: None if it is open, no stream wrote it, or the log does not say.
    """

    table: str
    key: Mapping[str, Any]
    now: Mapping[str, Any] | None
    versions: Sequence[RowVersion]
    since: int
    definition: str
    closes_at: datetime | None = None
    closed: Closing | None = None


def in_archive(history: RowHistory, archive: Archive) -> RowHistory:
    """Adds to each record of the history the archived segment that holds it."""

    def placed(record: Record) -> Record:
        partitions = archive.partitions.get(record.source, {})
        if record.partition is None or record.offset is None or record.partition not in partitions:
            return record
        segment = partitions[record.partition].segment_of(record.offset)
        return replace(record, segment=str(segment) if segment else None)

    versions = [replace(entry, records=[placed(r) for r in entry.records]) for entry in history.versions]
    return replace(history, versions=versions)


def read_history(lake: Lake, table: Table, key: Mapping[str, Any]) -> RowHistory:
    """Reads the history of the row with this key, oldest first.

    Raises:
        ChangesGone: a VACUUM removed the changes of remaining commits.
    """
    name = table.full_name
    newest = lake.version(name)
    since = lake.oldest_commit(name, -1, newest)
    ledgers = Ledgers(lake)
    feed = _changes(lake, name, key, since, newest)
    corrections = {c["version"]: c for c in ledgers.corrections(name, key={c: key[c] for c in table.primary_key})}
    versions = []
    for version, sides in feed:
        (commit,) = lake.commits(name, version - 1, version)
        versions.append(_row_version(table, commit, sides, corrections.get(version)))
    now = _live(lake, name, key)
    versions += _looks(ledgers, table, [c.run for c in versions if c.run], now or _last(feed))
    closes_at = (now or _last(feed) or {}).get(table.closes_at or "")
    return RowHistory(
        table=name,
        key=to_plain_json(key),
        now=to_plain_json(now) if now else None,
        versions=sorted(versions, key=lambda c: c.at),
        since=since,
        definition=fingerprint(table),
        closes_at=closes_at,
        closed=_closing(lake, name, versions, newest, closes_at) if closes_at else None,
    )


def _closing(lake: Lake, name: str, versions: Sequence[RowVersion], newest: int, closes_at: datetime) -> Closing | None:
    """Finds the first commit, of those since a stream last wrote the row, whose watermark had reached its end."""
    streamed = max((v.version for v in versions if v.by == "stream" and v.version is not None), default=None)
    for commit in () if streamed is None else lake.commits(name, streamed - 1, newest):
        watermark = _watermark(commit)
        if watermark and watermark >= closes_at and commit.info.get("cause") == "stream":
            return Closing(at=_time_of(commit), version=commit.version, watermark=watermark)
    return None


def _watermark(commit: LoggedCommit) -> datetime | None:
    ms = commit.info.get("watermark_ms")
    return from_epoch_ms(ms) if ms else None


def _time_of(commit: LoggedCommit) -> datetime:
    return datetime.fromtimestamp(commit.timestamp_ms / 1_000, UTC)


def _row_version(
    table: Table, commit: LoggedCommit, sides: Mapping[str, Mapping[str, Any]], correction: Mapping[str, Any] | None
) -> RowVersion:
    before, after = sides.get("before"), sides.get("after")
    info, at = commit.info, _time_of(commit)
    inputs = info.get("inputs")
    if inputs is None and "versions" in info:  # a stream notes the version that it reads next
        inputs = {source: int(version) - 1 for source, version in info["versions"].items()}
    old, new = _differing(before, after)
    return RowVersion(
        version=commit.version,
        at=at,
        change="update" if before and after else ("insert" if after else "delete"),
        by=str(info.get("cause", "unknown")),
        before=old,
        after=new,
        batch=info.get("batch"),
        run=info.get("run"),
        inputs=inputs,
        records=[Record(**record) for record in (correction or {}).get("evidence") or ()],
        fingerprint=info.get("fingerprint"),
        commit=_git_commit(table, at),
        watermark=_watermark(commit),
    )


def _looks(
    ledgers: Ledgers, table: Table, reported: Sequence[str], row: Mapping[str, Any] | None
) -> Iterator[RowVersion]:
    """Yields the runs that recomputed the row and found it right."""
    by_run: dict[str, list[Record]] = {}
    for run, e in ledgers.evidence(table.full_name) if row else ():
        if run not in reported and e.scope and row and is_held(table, row, e):
            record = Record(source=e.source, partition=e.partition, offset=e.offset, late_by_ms=e.late_by_ms)
            by_run.setdefault(run, []).append(record)
    for run, records in by_run.items():
        yield RowVersion(
            version=None,
            at=started_at(run) or EPOCH,
            change="none",
            by=run.partition("-")[0],
            run=run,
            records=records,
        )


def _differing(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    old, new = to_plain_json(before) if before else None, to_plain_json(after) if after else None
    if old is None or new is None:
        return old, new
    differ = [column for column in new if new[column] != old.get(column)]
    return {c: old.get(c) for c in differ}, {c: new[c] for c in differ}


def _changes(
    lake: Lake, name: str, key: Mapping[str, Any], since: int, newest: int
) -> list[tuple[int, dict[str, dict[str, Any]]]]:
    """Returns the versions that wrote the row, each with the row before and after."""
    versions: dict[int, dict[str, dict[str, Any]]] = {}
    with naming_what_is_gone(name, since, newest):
        feed = lake.open(name).load_cdf(starting_version=since, ending_version=newest)
        rows = _where(pa.RecordBatchReader.from_stream(feed), key)
    for row in rows:
        side, values = side_of(row)
        versions.setdefault(row["_commit_version"], {})[side] = values
    return sorted(versions.items())


def _live(lake: Lake, name: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
    rows = _where(pa.RecordBatchReader.from_stream(lake.open(name).scan()), key)
    return rows[0] if rows else None


def _where(rows: pa.RecordBatchReader, key: Mapping[str, Any]) -> list[dict[str, Any]]:
    same = " AND ".join(f"{DUCKDB.name(column)} IS NOT DISTINCT FROM ?" for column in key)
    return query(f"SELECT * FROM rows WHERE {same}", list(key.values()), rows=rows).to_pylist()  # type: ignore[no-any-return]


def _last(feed: Sequence[tuple[int, Mapping[str, Mapping[str, Any]]]]) -> Mapping[str, Any] | None:
    return next(iter(feed[-1][1].values())) if feed else None


def _git_commit(table: Table, at: datetime) -> str | None:
    """Returns the last Git commit of the table's file at that time; None if Git does not know it."""
    file = f"tables/{table.domain}/{table.name}.py"
    try:
        ran = subprocess.run(
            ["git", "log", "-1", "--format=%h", f"--before={at.isoformat()}", "--", file],
            cwd=project().folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() or None
