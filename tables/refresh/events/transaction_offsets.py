"""Ledger of offsets without a record: transaction markers, aborted records, and what compaction removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake, described
from twofold.infra.offset_ranges import Range, Spans, joined, subtract
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold_algebra.sql.names import DATAFUSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSACTIONS = "ledger.transactions"
COLUMNS = [
    ("topic", pa.string(), "full name of the topic"),
    ("partition", pa.int32(), "partition of the topic"),
    ("start", pa.int64(), "first offset"),
    ("end", pa.int64(), "first offset after the range"),
    ("recorded_at", TIMESTAMP, "when the row was written"),
    ("log", pa.string(), "the topic's id on the broker; a topic that is deleted and created again has another one"),
]
SCHEMA = described(
    "One row per range of offsets taken by transaction markers and aborted records. Written by audits, when they "
    "have read the log there.",
    COLUMNS,
)


def ensure(lake: Lake) -> None:
    """Creates the ledger if it does not exist."""
    lake.ensure(TRANSACTIONS, SCHEMA, statistics=["topic", "partition", "start"])


def in_transactions(lake: Lake, topic: str, log: str) -> dict[int, list[Range]]:
    """Returns the known markers and aborted records of a topic's log, by partition, in order.

    Args:
        log: the topic's id on the broker; a topic that is created again starts another log.
    """
    uncommitted: dict[int, list[Range]] = {}
    if lake.exists(TRANSACTIONS):
        predicate = f"topic = {DATAFUSION.literal(topic)} AND log = {DATAFUSION.literal(log)}"
        for row in select(lake.open(TRANSACTIONS), ["partition", "start", "end"], predicate).to_pylist():
            uncommitted.setdefault(row["partition"], []).append((row["start"], row["end"]))
    return {partition: joined(here) for partition, here in uncommitted.items()}


def record(lake: Lake, topic: str, log: str, found: Spans, spark: SparkSession | None = None) -> None:
    """Appends the offsets that the ledger does not have yet.

    Raises:
        WriteConflict: others record those of the same topic. Retryable.
    """
    now = datetime.now(UTC)

    def new() -> pa.Table:
        rows = [
            {"topic": topic, "partition": p, "start": start, "end": end, "recorded_at": now, "log": log}
            for p, here in subtract(found, in_transactions(lake, topic, log)).items()
            for start, end in here
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    Writer(lake, TRANSACTIONS, spark, compact_without_history).append_new(f"transactions/{topic}", new)
