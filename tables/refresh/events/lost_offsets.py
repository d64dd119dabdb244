"""Ledger of lost offsets: each range once, until it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake, described
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import Range, Ranges, batches_of_size, spans, subtract, without
from twofold.tables.refresh.events import transaction_offsets
from twofold.tables.refresh.events.record_decoder import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAPS = "ledger.gaps"
SCHEMA = described(
    "One row per range of offsets that is lost: neither ingested nor in the broker nor in the archive. Written "
    "before ingest advances past the range.",
    [
        *transaction_offsets.COLUMNS,
        ("why", pa.string(), "where the records were looked for"),
        (
            "acknowledged_at",
            TIMESTAMP,
            "when a person acknowledged the loss; null: not yet, and status, audit and DAG fail",
        ),
        ("because", pa.string(), "the reason that this person gave"),
    ],
)
_KEY = ("topic", "log", "partition", "start", "end")


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Offsets `[start, end)` of a partition that are neither ingested nor anywhere else any more.

    Attributes:
        why: what was asked in vain.
        log: the topic's id on the broker; a topic that is created again starts another log.
        acknowledged_at: when a person acknowledged it; None: not yet.
        because: what that person said.
    """

    topic: str
    partition: int
    start: int
    end: int
    recorded_at: datetime
    why: str
    log: str = ""
    acknowledged_at: datetime | None = None
    because: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it waits for an acknowledgement."""
        return self.acknowledged_at is None

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}: offsets [{self.start}, {self.end}) are lost: {self.why}"


def ensure(lake: Lake) -> None:
    """Creates the ledger if it does not exist."""
    lake.ensure(GAPS, SCHEMA, statistics=["topic", "partition", "start"])


def gaps(lake: Lake, topic: str | None = None) -> list[Gap]:
    """Reads the gaps of a topic, or of all, ordered by topic, partition and offset."""
    if not lake.exists(GAPS):
        return []
    rows = pa.table(lake.open(GAPS).scan()).to_pylist()
    names = [f.name for f in fields(Gap)]
    listed = [Gap(**{name: row[name] for name in names}) for row in rows if topic in (None, row["topic"])]
    return sorted(listed, key=lambda gap: (gap.topic, gap.partition, gap.start, gap.log))


def record(lake: Lake, found: Sequence[Gap], spark: SparkSession | None = None) -> list[Gap]:
    """Appends the parts of gaps of one topic that the ledger does not have yet.

    Returns:
        The written gaps; none if all were known, so that a call can be repeated after a crash.

    Raises:
        WriteConflict: others record gaps of the same topic. Retryable.
    """
    topic = found[0].topic

    def new() -> pa.Table:
        return pa.Table.from_pylist([asdict(gap) for gap in _beyond(found, gaps(lake, topic))], schema=SCHEMA)

    return [
        Gap(**row)
        for row in Writer(lake, GAPS, spark, compact_without_history).append_new(f"gaps/{topic}", new).to_pylist()
    ]


def between_gaps(ranges: Ranges, known: Sequence[Gap]) -> list[dict[int, tuple[int, int]]]:
    """Subtracts lost offsets from ranges, in as few parts of one range per partition as possible."""
    return list(batches_of_size(subtract(spans(ranges), places(known))))


def places(known: Iterable[Gap]) -> dict[int, list[Range]]:
    """Returns the offsets of gaps of one topic, by partition."""
    lost: dict[int, list[Range]] = {}
    for gap in known:
        lost.setdefault(gap.partition, []).append((gap.start, gap.end))
    return lost


def acknowledge(lake: Lake, topic: str, because: str, spark: SparkSession | None = None) -> list[Gap]:
    """Acknowledges the gaps of a topic, so that audits pass again; the records stay lost.

    Returns:
        The gaps that were open.

    Raises:
        BadArgument: `because` is empty.
    """
    if not because.strip():
        raise BadArgument("A gap is acknowledged with a reason.", hint="Say what was lost, and who knows of it.")
    if not lake.exists(GAPS):
        return []
    writer, app = Writer(lake, GAPS, spark, compact_without_history), "acknowledged"
    number, now = writer.next_number(app), datetime.now(UTC)
    acknowledged = [replace(gap, acknowledged_at=now, because=because) for gap in gaps(lake, topic) if gap.is_open]
    if acknowledged:
        rows = pa.Table.from_pylist([asdict(gap) for gap in acknowledged], schema=SCHEMA)
        writer.upsert(rows, _KEY, CommitTag(app=app, version=number))
    return acknowledged


def _beyond(found: Iterable[Gap], known: Sequence[Gap]) -> Iterator[Gap]:
    """Yields the parts of gaps that no known gap of the same log covers."""
    for gap in found:
        taken = [(o.start, o.end) for o in known if (o.partition, o.log) == (gap.partition, gap.log)]
        for start, end in without((gap.start, gap.end), taken):
            yield replace(gap, start=start, end=end)
