"""What the platform remembers of its own work: runs, their evidence, the corrections that came of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from infra.duck import duckdb_utc
from tables.declaration import Table
from tables.decode import TIMESTAMP
from tables.evidence import RECORD, Evidence, Forced, records
from tables.lake import Lake, LoggedCommit
from tables.outcome import Audited, Outcome
from tables.plain import plain, to_json
from tables.scope import Scope
from tables.scope_text import from_text, to_text
from tables.standing import RUNS as RUNS
from tables.standing import standings
from tables.tidy import tidy
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVIDENCE, CORRECTIONS = "ledger.evidence", "ledger.corrections"

_RUNS_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("table", pa.string()),
        ("cause", pa.string()),
        ("recorded_at", TIMESTAMP),
        ("consumed", pa.string()),
        ("stream", pa.string()),
        ("pending", pa.string()),
        ("touched", pa.int64()),
        ("scopes", pa.int64()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("unexplained", pa.int64()),
        ("files_written", pa.int64()),
        ("version_before", pa.int64()),
        ("version_after", pa.int64()),
        ("seconds", pa.float64()),
        ("fingerprint", pa.string()),
        ("turn", pa.int64()),
        ("turns", pa.int64()),
        ("rows", pa.int64()),
        ("buckets", pa.int64()),
        ("differing", pa.int64()),
        ("excused", pa.int64()),
        ("approved_by", pa.string()),
    ]
)
_EVIDENCE_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("table", pa.string()),
        ("source", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("late_by_ms", pa.int64()),
        ("event_ms", pa.int64()),
        ("scope", pa.string()),
        ("start_ms", pa.int64()),
        ("end_ms", pa.int64()),
    ]
)
_CORRECTIONS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("key", pa.string()),
        ("change", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("cause", pa.string()),
        ("run", pa.string()),
        ("version", pa.int64()),
        ("recorded_at", TIMESTAMP),
        ("fingerprint", pa.string()),
        ("evidence", pa.list_(RECORD)),
        ("inputs", pa.string()),
    ]
)
# Commits of streams are looked through for those of batch runs; this many at most are looked through again.
_COMMITS_READ_AGAIN = 100
_TIDY_EVERY = 100
_COUNTS = (
    *("touched", "scopes", "inserted", "updated", "deleted", "unexplained"),
    *("files_written", "version_before", "version_after", "seconds", "approved_by"),
)
_AUDIT_COUNTS = ("turn", "rows", "buckets", "differing", "excused", "unexplained", "seconds")
_SCHEMAS = {RUNS: _RUNS_SCHEMA, EVIDENCE: _EVIDENCE_SCHEMA, CORRECTIONS: _CORRECTIONS_SCHEMA}


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """How far reconcile has come with a table.

    Attributes:
        consumed: input -> version through which its changes were looked at.
        stream: the stream whose output was reconciled; another one starts again at version 0.
        pending: scopes that reached rows which were still open.
    """

    consumed: Mapping[str, int] = field(default_factory=dict)
    stream: str = ""
    pending: Sequence[Scope] = ()


class Ledgers:
    """Reads and appends the ledgers of one lake."""

    def __init__(self, lake: Lake, spark: SparkSession | None = None) -> None:
        self._lake, self._spark = lake, spark
        self._writers: dict[str, Writer] = {}

    def ensure(self) -> None:
        """Create the ledger tables that are not there; those of an older version get the columns that they lack."""
        for name, schema in _SCHEMAS.items():
            self._lake.ensure(name, schema, statistics=["table", "run"])
            self._widen(name, schema)

    def _widen(self, name: str, schema: pa.Schema) -> None:
        from deltalake import Schema

        table = self._lake.open(name)
        known = {f.name for f in table.schema().fields}
        missing = [f for f in schema if f.name not in known]
        if missing:
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))

    def reconciled(self, table: str) -> Reconciled:
        """Where the last finished reconcile of the table stands; nothing consumed when there was none."""
        last = standings(self._lake).get(table)
        if last is None:
            return Reconciled()
        return Reconciled(consumed=last.consumed, stream=last.stream, pending=from_text(last.pending))

    def record_run(self, outcome: Outcome, state: Reconciled | None, fingerprint: str) -> None:
        """Append a finished run; with `state` it is also where the next reconcile begins."""
        row = {
            "run": outcome.run,
            "table": outcome.table,
            "cause": outcome.cause,
            "recorded_at": datetime.now(UTC),
            "consumed": json.dumps(dict(state.consumed)) if state else None,
            "stream": state.stream if state else None,
            "pending": to_text(state.pending) if state else None,
            "fingerprint": fingerprint,
            **{name: getattr(outcome, name) for name in _COUNTS},
        }
        self._append(RUNS, [row], outcome.run + outcome.table)

    def record_audit(self, audited: Audited, fingerprint: str) -> None:
        """Append a finished audit of a table; it published nothing."""
        row = {
            "run": audited.run,
            "table": audited.table,
            "cause": "audit",
            "recorded_at": datetime.now(UTC),
            "version_before": audited.version,
            "version_after": audited.version,
            "fingerprint": fingerprint,
            "turns": audited.of,
            **{name: getattr(audited, name) for name in _AUDIT_COUNTS},
        }
        self._append(RUNS, [row], audited.run + audited.table)

    def record_evidence(self, run: str, table: str, evidence: Sequence[Evidence]) -> None:
        """Append, before anything is published, why the run touches the table."""
        rows = [{"run": run, "table": table, **vars(e), "scope": json.dumps(plain(e.scope))} for e in evidence]
        self._append(EVIDENCE, rows, run + table)

    def record_corrections(self, table: Table) -> int:
        """Bring `corrections` up to the table's change data feed: one row per row that a batch run changed.

        What a crash left out is caught up by the next call; nothing is written twice. Commits that retention removed
        meanwhile are passed over.
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
            rows = list(self._corrections(table, commit.version, commit.info, commit.timestamp_ms))
            corrections = pa.Table.from_pylist(rows, schema=_CORRECTIONS_SCHEMA)
            added += writer.append(corrections, Stamp(app=app, version=commit.version)).inserted
            done = commit.version
        if newest - done > _COMMITS_READ_AGAIN:
            writer.append(_CORRECTIONS_SCHEMA.empty_table(), Stamp(app=app, version=newest))
        return added

    def catch_up(self, table: Table) -> None:
        """Note what runs that died have published into the table: their corrections, and the runs themselves."""
        name = table.full_name
        last = self._writer(CORRECTIONS).newest().transaction_version(f"corrections/{name}")
        self.record_corrections(table)
        published: dict[str, list[LoggedCommit]] = defaultdict(list)
        # The newest run of which the corrections are there may have died right after them.
        after = -1 if last is None else last - 1
        for commit in self._lake.commits(name, after, self._lake.version(name), kept=True):
            if "run" in commit.info:
                published[str(commit.info["run"])].append(commit)
        for run, commits in published.items():
            if not self._writer(RUNS).done(Stamp(app=run + name, version=1)):
                self._record_lost(name, run, commits)

    def _record_lost(self, table: str, run: str, commits: Sequence[LoggedCommit]) -> None:
        first, last = commits[0], commits[-1]
        made = Counter(c["change"] for c in self.corrections(table, first.version - 1, last.version) if c["run"] == run)
        outcome = Outcome(
            table=table,
            cause=first.info["cause"],
            run=run,
            inserted=made["insert"],
            updated=made["update"],
            deleted=made["delete"],
            files_written=sum(len(commit.added) for commit in commits),
            version_before=first.version - 1,
            version_after=last.version,
        )
        self.record_run(outcome, None, str(last.info.get("fingerprint") or ""))

    def newest_run(self, table: str, causes: Sequence[str]) -> dict[str, Any] | None:
        """The newest run of one of these causes that changed the table, by the columns of the ledger."""
        names = ", ".join(f'"{column}"' for column in _RUNS_SCHEMA.names)
        wanted = ", ".join("?" for _ in causes)
        rows = self._query(
            RUNS,
            f'SELECT {names} FROM ledger WHERE "table" = ? AND cause IN ({wanted}) AND version_after > version_before '
            "ORDER BY recorded_at DESC LIMIT 1",
            [table, *causes],
        )
        return dict(zip(_RUNS_SCHEMA.names, rows[0], strict=True)) if rows else None

    def corrected(self, table: str) -> int:
        """Rows of the table that batch runs ever changed."""
        return int(self._query(CORRECTIONS, 'SELECT count(*) FROM ledger WHERE "table" = ?', [table])[0][0])

    def corrections(self, table: str, after: int = -1, through: int | None = None) -> list[dict[str, Any]]:
        """What batch runs changed in versions `(after, through]` of a table, oldest first."""
        last = 2**62 if through is None else through
        names = ", ".join(f'"{column}"' for column in _CORRECTIONS_SCHEMA.names)
        rows = self._query(
            CORRECTIONS,
            f'SELECT {names} FROM ledger WHERE "table" = ? AND version > ? AND version <= ? ORDER BY version, key',
            [table, after, last],
        )
        return [dict(zip(_CORRECTIONS_SCHEMA.names, row, strict=True)) for row in rows]

    def evidence(self, table: str, run: str | None = None) -> list[tuple[str, Evidence]]:
        """Runs of a table, or one of them, with the records that forced them, by source and offset."""
        names = ", ".join(f'"{column}"' for column in _EVIDENCE_SCHEMA.names if column != "table")
        rows = self._query(
            EVIDENCE,
            f'SELECT {names} FROM ledger WHERE "table" = ? AND (? IS NULL OR run = ?) '
            'ORDER BY run, source, "partition", "offset"',
            [table, run, run],
        )
        columns = [c for c in _EVIDENCE_SCHEMA.names if c not in ("run", "table")]
        found = []
        for name, *values in rows:
            facts = dict(zip(columns, values, strict=True))
            scope = json.loads(facts["scope"])
            # Before columns were named, evidence did not say what of a row it touches.
            facts["scope"] = scope if isinstance(scope, dict) else {}
            found.append((name, Evidence(**facts)))
        return found

    def _corrections(
        self, table: Table, version: int, info: Mapping[str, Any], timestamp_ms: int
    ) -> Iterator[dict[str, Any]]:
        sides: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        feed = pa.table(self._lake.open(table.full_name).load_cdf(starting_version=version, ending_version=version))
        for row in feed.to_pylist():
            kind = row.pop("_change_type")
            values = {c: v for c, v in row.items() if not c.startswith("_commit")}
            side = "before" if kind in ("update_preimage", "delete") else "after"
            sides[to_json({c: values[c] for c in table.key})][side] = values
        forced = Forced(table, [e for _, e in self.evidence(table.full_name, str(info["run"]))])
        for name, both in sides.items():
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
                "evidence": records(e for row in both.values() for e in forced.of(row)),
                "inputs": json.dumps(info["inputs"]) if "inputs" in info else None,
            }

    def _writer(self, name: str) -> Writer:
        """Of a ledger: keeps what was read of its log."""
        return self._writers.setdefault(name, Writer(self._lake, name, self._spark))

    def _append(self, name: str, rows: Sequence[Mapping[str, Any]], app: str) -> None:
        if rows:
            table = pa.Table.from_pylist(list(rows), schema=_SCHEMAS[name])
            written = self._writer(name).append(table, Stamp(app=app, version=1))
            if written.version and written.version % _TIDY_EVERY == 0:
                tidy(self._lake, name)

    def _query(self, name: str, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = duckdb_utc()
        rows = pa.table(self._writer(name).newest().scan())
        for missing in (f for f in _SCHEMAS[name] if f.name not in rows.column_names):  # a ledger of an older version
            rows = rows.append_column(missing, pa.nulls(len(rows), missing.type))
        connection.register("ledger", rows)
        return connection.execute(sql, list(parameters)).fetchall()
