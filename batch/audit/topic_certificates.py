"""Fingerprints a topic's events and quarantine by blocks of offsets, and stores them as certificates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from twofold.batch.audit.hash_buckets import HASH, row_hash, totals
from twofold.infra.delta.compaction import compact_without_history
from twofold.infra.delta.datafusion_sql import select
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import Lake, described
from twofold.infra.instants import epoch_ms
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import TIMESTAMP
from twofold_algebra.sql.names import DATAFUSION

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame

CERTIFICATES = "ledger.certificates"
BLOCK = 10_000
"""Offsets of one block."""
_KEPT_MS = 30 * 86_400_000  # what Delta keeps of older versions by default
SCHEMA = described(
    "One row per block of 10,000 offsets of a topic that passed an audit as a whole. Written by `twofold audit "
    "TOPIC`; `twofold certify TOPIC` compares the tables with it, without the log.",
    [
        ("topic", pa.string(), "full name of the topic"),
        ("run", pa.string(), "id of the run"),
        ("recorded_at", TIMESTAMP, "when the row was written"),
        ("events_version", pa.int64(), "version of the events table"),
        ("quarantine_version", pa.int64(), "version of the quarantine table"),
        ("partition", pa.int32(), "partition of the topic"),
        ("start", pa.int64(), "first offset"),
        ("end", pa.int64(), "first offset after the range"),
        ("events", pa.int64(), "rows of events in the block"),
        ("quarantined", pa.int64(), "rows of quarantine in the block"),
        ("total", pa.string(), "sum of the row hashes"),
        ("xor", pa.int64(), "exclusive or of the row hashes"),
    ],
)


@dataclass(frozen=True, kw_only=True)
class CertifiedTopic:
    """The newest certificate of a topic.

    Attributes:
        version: of its events.
        records: events and quarantined records that it is about.
    """

    at: datetime
    version: int
    records: int


@dataclass(frozen=True, kw_only=True, order=True)
class Block:
    """The offsets `[start, end)` of a partition, and the records found there.

    Attributes:
        events, quarantined: the number of records.
        total, xor: of the hashes of all records, independent of their order; the sum is a decimal number.
    """

    partition: int
    start: int
    end: int
    events: int
    quarantined: int
    total: str
    xor: int


def block_of(offset: str) -> Column:
    """Returns the number of the block of an offset, counted from 0."""
    from pyspark.sql import functions as F

    return F.floor(F.col(offset) / BLOCK).cast("bigint")


def blocks_of(events: DataFrame, quarantine: DataFrame, topic: Topic) -> list[Block]:
    """Computes the fingerprints of rows of events and quarantine, in order of their blocks.

    A good record counts by its offset and its declared fields, a bad one by its offset and the bytes that are compared.
    """
    from pyspark.sql import functions as F

    good = events.where(f"{OFFSET} IS NOT NULL").select(
        PARTITION, OFFSET, row_hash(events, [PARTITION, OFFSET, *topic.columns]).alias(HASH), F.lit(1).alias("_good")
    )
    bad = quarantine.select(
        PARTITION,
        OFFSET,
        row_hash(quarantine, [PARTITION, OFFSET, *(() if topic.covered else ("value",))]).alias(HASH),
        F.lit(0).alias("_good"),
    )
    rows = (
        good.unionByName(bad)
        .groupBy(PARTITION, block_of(OFFSET).alias("_block"))
        .agg(
            F.sum("_good").alias("events"),
            F.sum(1 - F.col("_good")).alias("quarantined"),
            *totals(),
        )
        .collect()
    )
    return sorted(
        Block(
            partition=row[PARTITION],
            start=row["_block"] * BLOCK,
            end=(row["_block"] + 1) * BLOCK,
            events=row["events"],
            quarantined=row["quarantined"],
            total=row["total"],
            xor=row["xor"],
        )
        for row in rows
    )


def write_certificate(lake: Lake, topic: Topic, run: str, versions: tuple[int, int], blocks: Sequence[Block]) -> None:
    """Stores the fingerprints of the two tables at these versions, of events and of quarantine."""
    from deltalake.exceptions import CommitFailedError

    lake.ensure(CERTIFICATES, SCHEMA, statistics=["topic", "run", "recorded_at"])
    now = datetime.now(UTC)
    head = {"topic": topic.full_name, "run": run, "recorded_at": now}
    head |= {"events_version": versions[0], "quarantine_version": versions[1]}
    rows = pa.Table.from_pylist([{**head, **asdict(block)} for block in blocks], schema=SCHEMA)
    if len(rows):
        Writer(lake, CERTIFICATES, keep_small=compact_without_history).append_new(
            f"certificates/{topic.full_name}", lambda: rows
        )
        oldest = DATAFUSION.moment(TIMESTAMP, (epoch_ms(now) or 0) - _KEPT_MS)
        with suppress(CommitFailedError):  # another process removes them
            lake.open(CERTIFICATES).delete(f"topic = {DATAFUSION.literal(topic.full_name)} AND recorded_at < {oldest}")


def read_certificate(
    lake: Lake, topic: Topic, version: int | None = None
) -> tuple[tuple[int, int], list[Block]] | None:
    """Reads the topic's newest certificate, or the newest for a version of its events; None if there is none."""
    if not lake.exists(CERTIFICATES):
        return None
    of_version = "" if version is None else f" AND events_version = {version}"
    predicate = f"topic = {DATAFUSION.literal(topic.full_name)}{of_version}"
    runs = ["run", "recorded_at", "events_version", "quarantine_version"]
    certificates = select(lake.open(CERTIFICATES), runs, predicate)
    newest = certificates.sort_by([("recorded_at", "descending")]).slice(0, 1).to_pylist()
    if not newest:
        return None
    of_run = f"{predicate} AND run = {DATAFUSION.literal(newest[0]['run'])}"
    rows = select(lake.open(CERTIFICATES), list(Block.__dataclass_fields__), of_run)
    versions = newest[0]["events_version"], newest[0]["quarantine_version"]
    return versions, sorted(Block(**row) for row in rows.to_pylist())


def newest_certificates(table: DeltaTable) -> dict[str, CertifiedTopic]:
    """Returns the newest certificate of each topic from the ledger of certificates at a version."""
    rows = select(table, ["topic", "run", "recorded_at", "events_version", "events", "quarantined"])
    runs = rows.group_by(["topic", "run", "recorded_at", "events_version"]).aggregate(
        [("events", "sum"), ("quarantined", "sum")]
    )
    return {
        run["topic"]: CertifiedTopic(
            at=run["recorded_at"], version=run["events_version"], records=run["events_sum"] + run["quarantined_sum"]
        )
        for run in runs.sort_by("recorded_at").to_pylist()
    }


def differing(one: Iterable[Block], other: Iterable[Block]) -> list[tuple[int, int, int]]:
    """Returns (partition, start, end) of the blocks that differ between both sides."""
    left, right = ({(b.partition, b.start, b.end): b for b in side} for side in (one, other))
    return sorted(place for place in left.keys() | right.keys() if left.get(place) != right.get(place))
