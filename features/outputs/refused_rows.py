"""The ledger of rows that a copy cannot have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from twofold.features.outputs.revealed_places import Place
from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake, described
from twofold_algebra.sql.names import DATAFUSION

REFUSED = "ledger.refused"
SCHEMA = described(
    "One row per row of a table that an output cannot have, or whose change the receiver of a webhook refused. "
    "Written before the output goes on without the row.",
    [
        ("table", pa.string(), "full name of the table"),
        ("output", pa.string(), "name of the output"),
        ("key", pa.string(), "JSON: the key of the row, as a copy would have it in `_key`"),
        ("version", pa.int64(), "version of the table that has the row"),
        ("recorded_at", pa.timestamp("us", "UTC"), "when the row was written"),
        ("reason", pa.string(), "the answer of what holds the copy, or of the receiver"),
    ],
)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A row that a copy cannot have.

    Attributes:
        key: its primary key as JSON.
        reason: the answer of what holds the copy.
    """

    key: str
    reason: str


def record_refused(lake: Lake, place: Place, version: int, refused: Sequence[Refused]) -> None:
    """Appends rows of a version that are left out of a copy from here on, each once."""
    lake.ensure(REFUSED, SCHEMA, statistics=["table", "output", "version", "recorded_at"])
    known: dict[str, str | int] = {"table": place.table, "output": place.output, "version": version}
    condition = " AND ".join(f"{DATAFUSION.name(name)} = {DATAFUSION.literal(value)}" for name, value in known.items())

    def new() -> pa.Table:
        there = set(select(lake.open(REFUSED), ["key"], condition)["key"].to_pylist())
        now = datetime.now(UTC)
        rows = [
            {**known, "key": row.key, "recorded_at": now, "reason": row.reason}
            for row in refused
            if row.key not in there
        ]
        return pa.Table.from_pylist(rows, SCHEMA)

    Writer(lake, REFUSED, keep_small=compact_without_history).append_new(f"refused/{place.table}/{place.output}", new)


def refused_counts(lake: Lake) -> Counter[tuple[str, str]]:
    """Counts the refused rows by table and output."""
    if not lake.exists(REFUSED):
        return Counter()
    rows = select(lake.open(REFUSED), ["table", "output"])
    return Counter(zip(rows["table"].to_pylist(), rows["output"].to_pylist(), strict=True))
