"""Fingerprints of what a topic's two tables hold, block by block of offsets: written once, checked by anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from infra.duck import duckdb_utc
from tables.buckets import row_hash
from tables.declaration import Topic
from tables.decode import OFFSET, PARTITION, TIMESTAMP
from tables.lake import Lake
from tables.writer import Stamp, Writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CERTIFICATES = "ledger.certificates"
BLOCK = 10_000
"""Offsets of one block."""
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("run", pa.string()),
        ("recorded_at", TIMESTAMP),
        ("events_version", pa.int64()),
        ("quarantine_version", pa.int64()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("events", pa.int64()),
        ("quarantined", pa.int64()),
        ("total", pa.string()),
        ("xor", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True, order=True)
class Block:
    """What of the offsets `[start, end)` of a partition is there.

    Attributes:
        events, quarantined: records.
        total, xor: of the hashes of all records, in whatever order; the sum is a decimal number.
    """

    partition: int
    start: int
    end: int
    events: int
    quarantined: int
    total: str
    xor: int


def block_of(offset: str) -> Column:
    """The number of the block in which an offset lies, counted from 0."""
    from pyspark.sql import functions as F

    return F.floor(F.col(offset) / BLOCK).cast("bigint")


def blocks_of(events: DataFrame, quarantine: DataFrame, topic: Topic) -> list[Block]:
    """The fingerprints of rows of events and of quarantine, in order.

    A record counts by its place, by its declared fields where it is good, and by its bytes where it is not.
    """
    from pyspark.sql import functions as F

    good = events.where(f"{OFFSET} IS NOT NULL").select(
        PARTITION, OFFSET, row_hash(events, [PARTITION, OFFSET, *topic.columns]).alias("_hash"), F.lit(1).alias("_good")
    )
    bad = quarantine.select(
        PARTITION, OFFSET, row_hash(quarantine, [PARTITION, OFFSET, "value"]).alias("_hash"), F.lit(0).alias("_good")
    )
    rows = (
        good.unionByName(bad)
        .groupBy(PARTITION, block_of(OFFSET).alias("_block"))
        .agg(
            F.sum("_good").alias("events"),
            F.sum(1 - F.col("_good")).alias("quarantined"),
            # A sum of longs would overflow.
            F.sum(F.col("_hash").cast("decimal(20,0)")).cast("string").alias("total"),
            F.bit_xor("_hash").alias("xor"),
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
    """Keep what the two tables held at these versions, of events and of quarantine."""
    lake.ensure(CERTIFICATES, _SCHEMA, statistics=["topic", "run"])
    head = {"topic": topic.full_name, "run": run, "recorded_at": datetime.now(UTC)}
    head |= {"events_version": versions[0], "quarantine_version": versions[1]}
    rows = pa.Table.from_pylist([{**head, **asdict(block)} for block in blocks], schema=_SCHEMA)
    if len(rows):
        Writer(lake, CERTIFICATES).append(rows, Stamp(app=run, version=1))


def read_certificate(
    lake: Lake, topic: Topic, version: int | None = None
) -> tuple[tuple[int, int], list[Block]] | None:
    """The newest certificate of the topic, or the newest of a version of its events; None when there is none."""
    if not lake.exists(CERTIFICATES):
        return None
    connection = duckdb_utc()
    connection.register("ledger", pa.table(lake.open(CERTIFICATES).scan()))
    found = connection.execute(
        "SELECT run, events_version, quarantine_version FROM ledger "
        "WHERE topic = ? AND (? IS NULL OR events_version = ?) ORDER BY recorded_at DESC LIMIT 1",
        [topic.full_name, version, version],
    ).fetchone()
    if found is None:
        return None
    names = ", ".join(f'"{name}"' for name in Block.__dataclass_fields__)
    rows = connection.execute(
        f"SELECT {names} FROM ledger WHERE topic = ? AND run = ?", [topic.full_name, found[0]]
    ).fetchall()
    blocks = (Block(**dict(zip(Block.__dataclass_fields__, row, strict=True))) for row in rows)
    return (found[1], found[2]), sorted(blocks)


def differing(one: Iterable[Block], other: Iterable[Block]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of the blocks that are not the same on both sides."""
    left, right = ({(b.partition, b.start, b.end): b for b in side} for side in (one, other))
    return sorted(place for place in left.keys() | right.keys() if left.get(place) != right.get(place))
