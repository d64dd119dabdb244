"""What the platform remembers of its own work: runs, their evidence, the corrections that came of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tables.decode import TIMESTAMP
from tables.lake import Lake
from tables.outcome import Outcome
from tables.scope import Interval, Scope
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS, EVIDENCE, CORRECTIONS = "ledger.runs", "ledger.evidence", "ledger.corrections"

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
    ]
)
# Commits of streams are looked through for those of batch runs; this many at most are looked through again.
_COMMITS_READ_AGAIN = 100
_SCHEMAS = {RUNS: _RUNS_SCHEMA, EVIDENCE: _EVIDENCE_SCHEMA, CORRECTIONS: _CORRECTIONS_SCHEMA}


@dataclass(frozen=True)
class Evidence:
    """A record that forced a recomputation: where in which log it stands, and how late it was."""

    source: str
    partition: int | None
    offset: int | None
    late_by_ms: int | None
    event_ms: int | None
    values: tuple[Any, ...]


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

    def ensure(self) -> None:
        """Create the ledger tables that are not there."""
        for name, schema in _SCHEMAS.items():
            self._lake.ensure(name, schema, statistics=["table", "run"])

    def reconciled(self, table: str) -> Reconciled:
        """Where the last finished reconcile of the table stands; nothing consumed when there was none."""
        rows = self._query(
            RUNS,
            'SELECT consumed, stream, pending FROM ledger WHERE "table" = ? AND consumed IS NOT NULL '
            "ORDER BY recorded_at DESC, run DESC LIMIT 1",
            [table],
        )
        if not rows:
            return Reconciled()
        consumed, stream, pending = rows[0]
        return Reconciled(consumed=json.loads(consumed), stream=stream, pending=_scopes(pending))

    def record_run(self, outcome: Outcome, state: Reconciled | None, fingerprint: str) -> None:
        """Append a finished run; with `state` it is also where the next reconcile begins."""
        row = {
            "run": outcome.run,
            "table": outcome.table,
            "cause": outcome.cause,
            "recorded_at": datetime.now(UTC),
            "consumed": json.dumps(dict(state.consumed)) if state else None,
            "stream": state.stream if state else None,
            "pending": _text(state.pending) if state else None,
            "fingerprint": fingerprint,
            **{
                name: getattr(outcome, name)
                for name in _RUNS_SCHEMA.names
                if name not in ("run", "table", "cause", "recorded_at", "consumed", "stream", "pending", "fingerprint")
            },
        }
        self._append(RUNS, [row], outcome.run + outcome.table)

    def record_evidence(self, run: str, table: str, evidence: Sequence[Evidence]) -> None:
        """Append, before anything is published, why the run touches the table."""
        rows = [
            {
                "run": run,
                "table": table,
                "source": e.source,
                "partition": e.partition,
                "offset": e.offset,
                "late_by_ms": e.late_by_ms,
                "event_ms": e.event_ms,
                "scope": json.dumps([None if v is ... else v for v in e.values], default=str),
            }
            for e in evidence
        ]
        self._append(EVIDENCE, rows, run + table)

    def record_corrections(self, table: str, key: Sequence[str]) -> int:
        """Bring `corrections` up to the table's change data feed: one row per row that a batch run changed.

        What a crash left out is caught up by the next call; nothing is written twice.
        """
        writer, app = Writer(self._lake, CORRECTIONS, self._spark), f"corrections/{table}"
        last = self._lake.open(CORRECTIONS).transaction_version(app)
        done = -1 if last is None else last
        newest = self._lake.version(table)
        added = 0
        for commit in self._lake.commits(table, done, newest):
            if not commit.changes or "run" not in commit.info:
                continue
            rows = self._corrections(table, key, commit.version, commit.info, commit.timestamp_ms)
            corrections = pa.Table.from_pylist(rows, schema=_CORRECTIONS_SCHEMA)
            added += writer.append(corrections, Stamp(app=app, version=commit.version)).inserted
            done = commit.version
        if newest - done > _COMMITS_READ_AGAIN:
            writer.append(_CORRECTIONS_SCHEMA.empty_table(), Stamp(app=app, version=newest))
        return added

    def corrected(self, table: str) -> int:
        """Rows of the table that batch runs ever changed."""
        return int(self._query(CORRECTIONS, 'SELECT count(*) FROM ledger WHERE "table" = ?', [table])[0][0])

    def _corrections(
        self, table: str, key: Sequence[str], version: int, info: Mapping[str, Any], timestamp_ms: int
    ) -> list[dict[str, Any]]:
        feed = pa.table(self._lake.open(table).load_cdf(starting_version=version, ending_version=version))
        sides: dict[str, dict[str, Any]] = {}
        for row in feed.to_pylist():
            kind = row.pop("_change_type")
            values = {c: v for c, v in row.items() if not c.startswith("_commit")}
            name = _json({c: values[c] for c in key})
            side = "before" if kind in ("update_preimage", "delete") else "after"
            sides.setdefault(name, {})[side] = _json(values)
        return [
            {
                "table": table,
                "key": name,
                "change": "update" if len(both) == 2 else ("insert" if "after" in both else "delete"),
                "before": both.get("before"),
                "after": both.get("after"),
                "cause": info.get("cause"),
                "run": info.get("run"),
                "version": version,
                "recorded_at": datetime.fromtimestamp(timestamp_ms / 1000, UTC),
                "fingerprint": info.get("fingerprint"),
            }
            for name, both in sides.items()
        ]

    def _append(self, name: str, rows: Sequence[Mapping[str, Any]], app: str) -> None:
        if rows:
            table = pa.Table.from_pylist(list(rows), schema=_SCHEMAS[name])
            Writer(self._lake, name, self._spark).append(table, Stamp(app=app, version=1))

    def _query(self, name: str, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        import duckdb

        connection = duckdb.connect()
        connection.register("ledger", pa.table(self._lake.open(name).scan()))
        return connection.execute(sql, list(parameters)).fetchall()


def _text(scopes: Sequence[Scope]) -> str:
    return json.dumps(
        [
            {
                "values": [{"any": True} if v is ... else _tagged(v) for v in s.values],
                "interval": [s.interval.start, s.interval.end] if s.interval else None,
            }
            for s in scopes
        ]
    )


def _scopes(text: str) -> list[Scope]:
    return [
        Scope(
            tuple(_untagged(v) for v in item["values"]),
            Interval(*item["interval"]) if item["interval"] else None,
        )
        for item in json.loads(text)
    ]


def _tagged(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    return {"date": value.isoformat()} if isinstance(value, date) else value


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "any" in value:
        return ...
    if "date" in value:
        return date.fromisoformat(value["date"])
    return datetime.fromisoformat(value["timestamp"])


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(_plain(values), allow_nan=False)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: dates in ISO 8601, bytes in hex, decimals and what is no number as texts."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int) else str(value)
