"""Descriptions of ledgers and their columns, for people who query them; the schemas give names and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """A ledger, for its readers."""

    row_per: str
    written: str
    columns: Mapping[str, str]

    @property
    def description(self) -> str:
        return f"One row per {self.row_per}. Written {self.written}."


_RUN = "id of the run"
_TABLE = "full name of the table"
_RECORDED = "when the row was written"
_TOPIC = "full name of the topic"
_LOG = "the topic's id on the broker; a topic that is deleted and created again has another one"
_FINGERPRINT = "fingerprint of the definition that computed the rows"
_RANGE = {"partition": "partition of the topic", "start": "first offset", "end": "first offset after the range"}

LEDGERS: Mapping[str, Ledger] = {
    "ledger.runs": Ledger(
        row_per="batch run and table, or one of the two tables of a topic",
        written="last, when all that the run did is in the other ledgers",
        columns={
            "run": _RUN,
            "table": _TABLE,
            "cause": "`late`, `upstream`, `replay`, `backfill`, `definition`, `repair`, `rebuild`, `rollback` "
            "or `audit`; of a topic `audit_offsets`, `audit_log` or `audit_database`",
            "recorded_at": _RECORDED,
            "touched": "input rows that can have changed the table",
            "scopes": "groups of rows that were recomputed",
            "inserted": "rows inserted",
            "updated": "rows updated",
            "deleted": "rows deleted",
            "unexplained": "rows that differ although nothing touched them; of a topic what is wrong with it",
            "files_written": "data files of the publication",
            "version_before": "version of the Delta table before the publication; `rollback --run` undoes the run",
            "version_after": "version after it",
            "seconds": "duration",
            "fingerprint": _FINGERPRINT,
            "turn": "audit: which share of the rows was recomputed",
            "turns": "audit: of how many shares",
            "rows": "audit: rows compared",
            "buckets": "audit: hash buckets compared",
            "differing": "audit: buckets that differ",
            "excused": "audit: rows that differ and that something in flight explains",
            "approved_by": "who approved, where approval was asked for",
        },
    ),
    "ledger.evidence": Ledger(
        row_per="record that caused a recomputation",
        written="before anything is published",
        columns={
            "run": _RUN,
            "table": _TABLE,
            "source": "topic of the record; or the upstream table, where its change has no record",
            "partition": "partition of the record",
            "offset": "offset of the record",
            "late_by_ms": "how late it was, in milliseconds: `_late_by_ms` of the record",
            "event_ms": "event time of the changed input row, epoch milliseconds",
            "scope": "JSON: the values of `recompute_by` of the rows that it may affect",
            "start_ms": "the rows that it may affect are dated from here, epoch milliseconds; null: any time",
            "end_ms": "the rows that it may affect are dated before this, epoch milliseconds; null: any time",
            "recorded_at": _RECORDED,
        },
    ),
    "ledger.corrections": Ledger(
        row_per="table row that batch work changed",
        written="from the change data feed of the publication; what a crash left out is added by the next run",
        columns={
            "table": _TABLE,
            "key": "JSON: the key of the row",
            "change": "insert, update or delete",
            "before": "JSON: the row before; null for an insert",
            "after": "JSON: the row after; null for a delete",
            "cause": "as in `ledger.runs`",
            "run": _RUN,
            "version": "version of the Delta table that has the change",
            "recorded_at": _RECORDED,
            "fingerprint": _FINGERPRINT,
            "evidence": "the first 100 records that caused it; all are in `ledger.evidence` under the same run",
            "inputs": "JSON: input -> version that was read",
            "records": "how many records caused it",
            "latest_ms": "the greatest lateness of all of them, milliseconds; null: that of one is not known",
        },
    ),
    "ledger.positions": Ledger(
        row_per="table: where its next reconcile starts",
        written="at the end of a reconcile; by one that found nothing to do, once 100 commits have passed",
        columns={
            "table": _TABLE,
            "consumed": "JSON: input -> version through which its changes were processed",
            "stream": "id of the stream whose output was reconciled",
            "pending": "JSON: scopes that reach open rows, each with the time at which the next of them closes",
            "fingerprint": _FINGERPRINT,
            "recorded_at": _RECORDED,
        },
    ),
    "ledger.gaps": Ledger(
        row_per="range of offsets that is lost: neither ingested nor in the broker nor in the archive",
        written="before ingest advances past the range",
        columns={
            "topic": _TOPIC,
            **_RANGE,
            "recorded_at": _RECORDED,
            "why": "where the records were looked for",
            "log": _LOG,
            "acknowledged_at": "when a person acknowledged the loss; null: not yet, and status, audit and DAG fail",
            "because": "the reason that this person gave",
        },
    ),
    "ledger.transactions": Ledger(
        row_per="range of offsets taken by transaction markers and aborted records",
        written="by audits, when they have read the log there",
        columns={"topic": _TOPIC, **_RANGE, "recorded_at": _RECORDED, "log": _LOG},
    ),
    "ledger.certificates": Ledger(
        row_per="block of 10,000 offsets of a topic that passed an audit as a whole",
        written="by `twofold audit TOPIC`; `twofold certify TOPIC` compares the tables with it, without the log",
        columns={
            "topic": _TOPIC,
            "run": _RUN,
            "recorded_at": _RECORDED,
            "events_version": "version of the events table",
            "quarantine_version": "version of the quarantine table",
            **_RANGE,
            "events": "rows of events in the block",
            "quarantined": "rows of quarantine in the block",
            "total": "sum of the row hashes",
            "xor": "exclusive or of the row hashes",
        },
    ),
    "ledger.refused": Ledger(
        row_per="row of a table that an output cannot have, or whose change the receiver of a webhook refused",
        written="before the output goes on without the row",
        columns={
            "table": _TABLE,
            "output": "name of the output",
            "key": "JSON: the key of the row, as a copy would have it in `_key`",
            "version": "version of the table that has the row",
            "recorded_at": _RECORDED,
            "reason": "the answer of what holds the copy, or of the receiver",
        },
    ),
    "ledger.revealed": Ledger(
        row_per="place to which an output reveals values of persons, and place that has none any more",
        written="before the first value; and by `twofold outputs erase`",
        columns={
            "table": _TABLE,
            "output": "name of the output",
            "kind": "what holds the copy",
            "destination": "name of its address; empty: the place that the kind has by default",
            "is_gone": "whether nothing is there any more",
            "recorded_at": _RECORDED,
        },
    ),
    "ledger.forgotten": Ledger(
        row_per="end of a key, and person, look, and place that holds values of the person; no id is in it",
        written="before the key goes, and once it has ended, by `forget --now` and `forget --certificate`",
        columns={
            "ref": "the person: a keyed hash of kind and id, which `forget KIND ID --ask` prints",
            "kind": "kind of the person; `_day`: it was the key of a day",
            "forgotten_no": "number of the end of the key",
            "place": "full name of the table; of an output, its table's and its own; empty: the end itself",
            "part": "`events`, `quarantine`, `table`, `ledger`, or the kind of output; `key`: the end itself",
            "rows": "rows with values of the person, which could be read before",
            "readable": "how many of them can be read now; null: the copy did not answer",
            "recorded_at": _RECORDED,
        },
    ),
}
