"""Reads and writes the ledgers of runs, causes, corrections and positions."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from twofold.batch.ledgers.causes import RECORD, Causes, CausingRecord, Changed, ChangedRows, span_of
from twofold.batch.ledgers.reconcile_position import POSITIONS, ReconcilePosition, reconcile_positions
from twofold.batch.ledgers.run_result import RUNS, Audited, RunResult, TopicCheck, run_name, started_at
from twofold.infra.delta.change_feed import naming_what_is_gone, side_of
from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake, described
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.infra.errors import ChangesGone
from twofold.infra.instants import epoch_ms
from twofold.tables.declare.table import Table
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold.tables.refresh.json_values import to_json, to_plain_json
from twofold_algebra.sql.names import DATAFUSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVIDENCE, CORRECTIONS = "ledger.evidence", "ledger.corrections"
_log = logging.getLogger("twofold.ledgers")

_CAUSES = (
    "`late`, `upstream`, `replay`, `backfill`, `definition`, `repair`, `rebuild`, `rollback` or `audit`; of a topic "
    "`audit_offsets`, `audit_log` or `audit_database`"
)
_RUNS_SCHEMA = described(
    "One row per batch run and table, or one of the two tables of a topic. Written last, when all that the run did "
    "is in the other ledgers.",
    [
        ("run", pa.string(), "id of the run"),
        ("table", pa.string(), "full name of the table"),
        ("cause", pa.string(), _CAUSES),
        ("recorded_at", TIMESTAMP, "when the row was written"),
        ("touched", pa.int64(), "input rows that can have changed the table"),
        ("scopes", pa.int64(), "groups of rows that were recomputed"),
        ("inserted", pa.int64(), "rows inserted"),
        ("updated", pa.int64(), "rows updated"),
        ("deleted", pa.int64(), "rows deleted"),
        ("unexplained", pa.int64(), "rows that differ although nothing touched them; of a topic what is wrong with it"),
        ("files_written", pa.int64(), "data files of the publication"),
        (
            "version_before",
            pa.int64(),
            "version of the Delta table before the publication; `rollback --run` undoes the run",
        ),
        ("version_after", pa.int64(), "version after it"),
        ("seconds", pa.float64(), "duration"),
        ("fingerprint", pa.string(), "fingerprint of the definition that computed the rows"),
        ("turn", pa.int64(), "audit: which share of the rows was recomputed"),
        ("turns", pa.int64(), "audit: of how many shares"),
        ("rows", pa.int64(), "audit: rows compared"),
        ("buckets", pa.int64(), "audit: hash buckets compared"),
        ("differing", pa.int64(), "audit: buckets that differ"),
        ("excused", pa.int64(), "audit: rows that differ and that something in flight explains"),
        ("approved_by", pa.string(), "who approved, where approval was asked for"),
    ],
)
_EVIDENCE_SCHEMA = described(
    "One row per record that caused a recomputation. Written before anything is published.",
    [
        ("run", pa.string(), "id of the run"),
        ("table", pa.string(), "full name of the table"),
        ("source", pa.string(), "topic of the record; or the upstream table, where its change has no record"),
        ("partition", pa.int32(), "partition of the record"),
        ("offset", pa.int64(), "offset of the record"),
        ("late_by_ms", pa.int64(), "how late it was, in milliseconds: `_late_by_ms` of the record"),
        ("event_ms", pa.int64(), "event time of the changed input row, epoch milliseconds"),
        ("scope", pa.string(), "JSON: the values of `recompute_by` of the rows that it may affect"),
        ("start_ms", pa.int64(), "the rows that it may affect are dated from here, epoch milliseconds; null: any time"),
        ("end_ms", pa.int64(), "the rows that it may affect are dated before this, epoch milliseconds; null: any time"),
        ("recorded_at", TIMESTAMP, "when the row was written"),
    ],
)
_CORRECTIONS_SCHEMA = described(
    "One row per table row that batch work changed. Written from the change data feed of the publication; what a "
    "crash left out is added by the next run.",
    [
        ("table", pa.string(), "full name of the table"),
        ("key", pa.string(), "JSON: the key of the row"),
        ("change", pa.string(), "insert, update or delete"),
        ("before", pa.string(), "JSON: the row before; null for an insert"),
        ("after", pa.string(), "JSON: the row after; null for a delete"),
        ("cause", pa.string(), "as in `ledger.runs`"),
        ("run", pa.string(), "id of the run"),
        ("version", pa.int64(), "version of the Delta table that has the change"),
        ("recorded_at", TIMESTAMP, "when the row was written"),
        ("fingerprint", pa.string(), "fingerprint of the definition that computed the rows"),
        (
            "evidence",
            pa.list_(RECORD),
            "the first 100 records that caused it; all are in `ledger.evidence` under the same run",
        ),
        ("inputs", pa.string(), "JSON: input -> version that was read"),
        ("records", pa.int64(), "how many records caused it"),
        ("latest_ms", pa.int64(), "the greatest lateness of all of them, milliseconds; null: that of one is not known"),
    ],
)
# Commits of streams are looked through for those of batch runs; this many at most are looked through again.
_COMMITS_READ_AGAIN = 100
_AT_ONCE = 10_000  # records of evidence that are objects at the same time
_SLACK_MS = 3_600_000  # by which clocks of processes may differ
_COUNTS = (
    *("touched", "scopes", "inserted", "updated", "deleted", "unexplained"),
    *("files_written", "version_before", "version_after", "seconds", "approved_by"),
)
_AUDIT_COUNTS = ("turn", "rows", "buckets", "differing", "excused", "unexplained", "seconds")
_POSITIONS_SCHEMA = described(
    "One row per table: where its next reconcile starts. Written at the end of a reconcile; by one that found "
    "nothing to do, once 100 commits have passed.",
    [
        ("table", pa.string(), "full name of the table"),
        ("consumed", pa.string(), "JSON: input -> version through which its changes were processed"),
        ("stream", pa.string(), "id of the stream whose output was reconciled"),
        (
            "pending",
            pa.string(),
            "JSON: scopes that reach open rows, each with the time at which the next of them closes",
        ),
        ("fingerprint", pa.string(), "fingerprint of the definition that computed the rows"),
        ("recorded_at", TIMESTAMP, "when the row was written"),
    ],
)
LEDGERS = (RUNS, EVIDENCE, CORRECTIONS, POSITIONS)
SCHEMAS = {
    RUNS: _RUNS_SCHEMA,
    EVIDENCE: _EVIDENCE_SCHEMA,
    CORRECTIONS: _CORRECTIONS_SCHEMA,
    POSITIONS: _POSITIONS_SCHEMA,
}
_STATISTICS = ["table", "run", "recorded_at"]
"""Columns by which the files of a ledger are chosen."""


class Ledgers:
    """The ledgers of one lake; a missing one reads as empty, and is created at its first row."""

    def __init__(self, lake: Lake, spark: SparkSession | None = None) -> None:
        self._lake, self._spark = lake, spark
        self._writers: dict[str, Writer] = {}

    def ensure(self) -> None:
        """Creates the missing ledgers, so that analysts can query each of them."""
        for name in SCHEMAS:
            self._ensure(name)

    def position(self, table: str) -> ReconcilePosition:
        """Returns the position of the table's last finished reconcile; an empty one if there was none."""
        return reconcile_positions(self._lake).get(table, ReconcilePosition())

    def record_run(self, outcome: RunResult, position: ReconcilePosition | None, fingerprint: str) -> None:
        """Appends a finished run, once; `position` is the start of the next reconcile."""
        facts = {name: getattr(outcome, name) for name in ("cause", *_COUNTS)}
        self._append_run(outcome.run, outcome.table, {**facts, "fingerprint": fingerprint})
        if position:
            self.move({outcome.table: position}, outcome.table)

    def move(self, positions: Mapping[str, ReconcilePosition], app: str = "idle") -> None:
        """Stores the start of the next reconcile of each table.

        A reconcile may start from any position ever stored and still finds all work. If two processes reconcile one
        table at once, it does not matter whose position remains.

        Args:
            app: the writer's name; if two move positions at once under one name, one succeeds.
        """
        now = datetime.now(UTC)
        rows = [{**position.as_row(table), "recorded_at": now} for table, position in positions.items()]
        writer = self._writer(POSITIONS)
        stamp = CommitTag(app=app, version=writer.next_number(app))
        writer.upsert(pa.Table.from_pylist(rows, schema=_POSITIONS_SCHEMA), ["table"], stamp)
        for table, position in positions.items():
            for name, version in position.versions.items():
                self._lake.history(name).note(f"reconcile of {table}", version)

    def record_audit(self, audited: Audited, fingerprint: str) -> None:
        """Appends a finished audit of a table, which published nothing."""
        facts = {name: getattr(audited, name) for name in _AUDIT_COUNTS}
        versions = dict.fromkeys(("version_before", "version_after"), audited.version)
        facts |= {**versions, "cause": "audit", "fingerprint": fingerprint, "turns": audited.of}
        self._append_run(audited.run, audited.table, facts)

    def record_topic_audit(
        self, topic: str, check: TopicCheck, *, records: int, faults: int, turn: int = 0, of: int = 1
    ) -> None:
        """Appends a finished comparison of a topic.

        Args:
            faults: what nothing explains: offsets, blocks of offsets and other findings, or rows of the database.
            turn, of: the compared share: part `turn` of `of`.
        """
        facts = {"cause": check, "rows": records, "unexplained": faults, "turn": turn, "turns": of}
        self._append_run(run_name(check), topic, facts)

    def _append_run(self, run: str, table: str, facts: Mapping[str, object]) -> None:
        row = {"run": run, "table": table, "recorded_at": datetime.now(UTC), **facts}
        self._append(RUNS, table, run, pa.Table.from_pylist([row], schema=_RUNS_SCHEMA))

    def record_evidence(self, run: str, table: str, evidence: Sequence[CausingRecord]) -> None:
        """Appends, before anything is published, the records that cause the run."""
        head = {"run": run, "table": table, "recorded_at": datetime.now(UTC)}
        names = [f.name for f in fields(CausingRecord) if f.name != "scope"]

        def rows(some: Sequence[CausingRecord]) -> list[dict[str, Any]]:
            return [
                {**head, **{n: getattr(e, n) for n in names}, "scope": json.dumps(to_plain_json(e.scope))} for e in some
            ]

        parts = [
            pa.Table.from_pylist(rows(evidence[first : first + _AT_ONCE]), schema=_EVIDENCE_SCHEMA)
            for first in range(0, len(evidence), _AT_ONCE)
        ]
        if parts:
            self._append(EVIDENCE, table, run, pa.concat_tables(parts))

    def record_corrections(self, table: Table) -> int:
        """Appends to `corrections` a row for each row that a batch run changed, from the table's change data feed.

        The next call completes what a crash left out; nothing is written twice. Commits removed by retention, and
        commits whose changes a VACUUM removed, are skipped.
        """
        name = table.full_name
        writer, app = self._writer(CORRECTIONS), f"corrections/{name}"
        last = writer.newest().transaction_version(app)
        done = -1 if last is None else last
        newest = self._lake.version(name)
        added = 0
        for commit in self._lake.commits(name, done, newest, kept=True):
            if not commit.changes or "run" not in commit.info:
                continue
            try:
                rows = list(self._corrections(table, commit.version, commit.info, commit.timestamp_ms))
            except ChangesGone as gone:
                _log.warning("no corrections run=%s: %s", commit.info["run"], gone.message)
                continue
            corrections = pa.Table.from_pylist(rows, schema=_CORRECTIONS_SCHEMA)
            added += writer.append(corrections, CommitTag(app=app, version=commit.version)).inserted
            done = commit.version
        if newest - done > _COMMITS_READ_AGAIN:
            writer.append(_CORRECTIONS_SCHEMA.empty_table(), CommitTag(app=app, version=newest))
        return added

    def unrecorded_runs(self, table: Table) -> dict[str, list[LoggedCommit]]:
        """Returns the commits of runs that published into the table and died before they were recorded, by run.

        Their corrections are recorded here.
        """
        name = table.full_name
        last = self._writer(CORRECTIONS).newest().transaction_version(f"corrections/{name}")
        self.record_corrections(table)
        published: dict[str, list[LoggedCommit]] = defaultdict(list)
        # The newest run of which the corrections are there may have died right after them.
        after = -1 if last is None else last - 1
        for commit in self._lake.commits(name, after, self._lake.version(name), kept=True):
            if "run" in commit.info and commit.changes:
                published[str(commit.info["run"])].append(commit)
        return {run: commits for run, commits in published.items() if not self._has(RUNS, name, run)}

    def newest_run(self, table: str, causes: Sequence[str] = (), run: str = "") -> dict[str, Any] | None:
        """Returns the ledger row of the newest run of one of these causes, or of this name, that changed the table."""
        predicate = f"run = {DATAFUSION.literal(run)}" if run else f"cause IN ({DATAFUSION.literals(causes)})"
        rows = self._read(RUNS, table, None, predicate, "version_after > version_before")
        newest = rows.sort_by([("recorded_at", "descending")]).slice(0, 1).to_pylist()
        return newest[0] if newest else None

    def corrections(
        self, table: str, after: int = -1, through: int | None = None, key: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Returns the corrections by batch runs in versions `(after, through]` of a table, oldest first.

        Args:
            key: of one row, its columns in the order of the declaration; None: of all.
        """
        since_ms = None
        with suppress(FileNotFoundError, StopIteration):
            since_ms = next(self._lake.commits(table, after, after + 1)).timestamp_ms
        bounds = [f"version > {after}"]
        bounds += [] if through is None else [f"version <= {through}"]
        bounds += [] if key is None else [f"key = {DATAFUSION.literal(to_json(key))}"]
        rows = self._read(CORRECTIONS, table, since_ms, *bounds)
        return rows.sort_by([("version", "ascending"), ("key", "ascending")]).to_pylist()  # type: ignore[no-any-return]

    def evidence(self, table: str, run: str | None = None) -> Iterator[tuple[str, CausingRecord]]:
        """Yields runs of a table, or one of them, with the records that forced them, by source and offset.

        Records are yielded one by one, since all of them may not fit into memory.
        """
        rows = self._of_run(EVIDENCE, table, run) if run else self._read(EVIDENCE, table)
        order = [(column, "ascending") for column in ("run", "source", "partition", "offset")]
        for batch in rows.drop_columns(["table", "recorded_at"]).sort_by(order).to_batches(max_chunksize=_AT_ONCE):
            for row in batch.to_pylist():
                yield row.pop("run"), CausingRecord(**{**row, "scope": json.loads(row["scope"])})

    def _corrections(
        self, table: Table, version: int, info: Mapping[str, Any], timestamp_ms: int
    ) -> Iterator[dict[str, Any]]:
        sides: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        with naming_what_is_gone(table.full_name, version, version):
            feed = pa.table(self._lake.open(table.full_name).load_cdf(starting_version=version, ending_version=version))
        for row in feed.to_pylist():
            side, values = side_of(row)
            sides[to_json({c: values[c] for c in table.primary_key})][side] = values
        changed = ChangedRows(
            Changed(name, to_plain_json(row), *span_of(table, row))
            for name, both in sides.items()
            for row in both.values()
        )
        causes = changed.causes(e for _, e in self.evidence(table.full_name, str(info["run"])))
        for name, both in sides.items():
            why = causes.get(name, Causes())
            yield {
                "table": table.full_name,
                "key": name,
                "change": "update" if len(both) == 2 else ("insert" if "after" in both else "delete"),
                "before": to_json(both["before"]) if "before" in both else None,
                "after": to_json(both["after"]) if "after" in both else None,
                "cause": info.get("cause"),
                "run": info["run"],
                "version": version,
                "recorded_at": datetime.fromtimestamp(timestamp_ms / 1000, UTC),
                "fingerprint": info.get("fingerprint"),
                "evidence": why.records,
                "records": why.count,
                "latest_ms": why.latest_ms,
                "inputs": json.dumps(info["inputs"]) if "inputs" in info else None,
            }

    def _writer(self, name: str) -> Writer:
        """Returns the writer of a ledger, which is reused with the part of its log that was read."""
        if name not in self._writers:
            self._ensure(name)
            self._writers[name] = Writer(self._lake, name, self._spark, compact_without_history)
        return self._writers[name]

    def _ensure(self, name: str) -> None:
        """Creates the ledger, or adds the columns that it did not have yet."""
        schema = SCHEMAS[name]
        self._lake.ensure(name, schema, statistics=[column for column in _STATISTICS if column in schema.names])
        self._lake.extend(name, schema)

    def _append(self, name: str, table: str, run: str, rows: pa.Table) -> None:
        """Appends a run's rows about a table to a ledger, unless the ledger has them."""

        def new() -> pa.Table:
            return rows.slice(0, 0) if self._has(name, table, run) else rows

        self._writer(name).append_new(f"runs/{table}", new)

    def _has(self, name: str, table: str, run: str) -> bool:
        return bool(len(self._of_run(name, table, run, columns=["run"])))

    def _of_run(self, name: str, table: str, run: str, columns: Sequence[str] | None = None) -> pa.Table:
        return self._read(name, table, epoch_ms(started_at(run)), f"run = {DATAFUSION.literal(run)}", columns=columns)

    def _read(
        self, name: str, table: str, since_ms: int | None = None, *bounds: str, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Reads the rows of a table in a ledger, only from files that can have some: rows of a time are close together.

        Args:
            since_ms: the earliest time at which one of them was recorded.
            bounds: further conditions, in DataFusion's SQL.
        """
        columns = columns or SCHEMAS[name].names
        if name not in self._writers and not self._lake.exists(name):
            return pa.schema([SCHEMAS[name].field(column) for column in columns]).empty_table()
        conditions = [f'"table" = {DATAFUSION.literal(table)}', *bounds]
        if since_ms is not None:
            conditions.append(f"recorded_at >= {DATAFUSION.moment(TIMESTAMP, since_ms - _SLACK_MS)}")
        return select(self._writer(name).newest(), columns, " AND ".join(conditions))
