"""One range of the log from two places: the archive as far as it reaches, the broker from there on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from infra.archive.plan import Archive, Bounds
from infra.archive.rows import COLUMNS, HEADERS, schema
from infra.archive.source import frame
from infra.errors import LogGap, NotArchived
from infra.settings import Settings
from infra.topics import PartitionOffsets, offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Partitions = Mapping[int, tuple[int, int]]


def log_frame(
    spark: SparkSession,
    settings: Settings,
    archive: Archive,
    topic: str,
    ranges: Partitions,
    columns: Sequence[str] = COLUMNS,
) -> DataFrame:
    """The committed records of the offsets `[from, to)` of partitions, each once, wherever they are.

    Raises:
        NotArchived: a range goes beyond the end of the log.
        LogGap: neither the archive nor the broker has all of a range; names what is missing.
        BrokerUnreachable: retryable.
        as Archive.plan: before a job starts.
    """
    archived, remaining = split(topic, ranges, archive.bounds(topic), offsets(settings, [topic]).get(topic, {}))
    from_archive = frame(spark, archive, {topic: archived}, columns)
    if not remaining:
        return from_archive
    return from_archive.unionByName(broker_frame(spark, settings, topic, remaining, columns))


def split(
    topic: str, ranges: Partitions, archived: Mapping[int, Bounds], broker: Mapping[int, PartitionOffsets]
) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
    """Each range in two that meet: what the archive has of it, then what only the broker has; empty ones are left out.

    Args:
        archived: how far the archive of each partition reaches.
        broker: how far the broker's log reaches.

    Raises:
        NotArchived: a range goes beyond the end of the log.
        LogGap: between the two is nothing.
    """
    first: dict[int, tuple[int, int]] = {}
    second: dict[int, tuple[int, int]] = {}
    for partition, (start, end) in sorted(ranges.items()):
        bounds = archived.get(partition)
        cut = min(end, max(start, bounds.end)) if bounds is not None else start
        if start < cut:
            first[partition] = (start, cut)
        if cut < end:
            _check_broker(topic, partition, (cut, end), broker.get(partition))
            second[partition] = (cut, end)
    for partition, (start, end) in ranges.items():
        parts = [part[partition] for part in (first, second) if partition in part]
        if [start, *(edge for _, edge in parts)] != [*(edge for edge, _ in parts), end]:
            raise LogGap(f"{topic}, partition {partition}: {parts} are not [{start}, {end}) without gap or overlap.")
    return first, second


def _check_broker(topic: str, partition: int, rest: tuple[int, int], there: PartitionOffsets | None) -> None:
    asked = f"{topic}, partition {partition}: the archive ends before offsets [{rest[0]}, {rest[1]}), and the broker "
    facts = {"topic": topic, "partition": partition, "asked": rest}
    if there is None:
        raise LogGap(asked + "has no such partition.", hint="Check the topic and the partition.", **facts)
    if there.earliest > rest[0]:
        raise LogGap(
            asked + f"begins at {there.earliest}.",
            hint=f"Offsets [{rest[0]}, {min(there.earliest, rest[1])}) are in neither; ask for the others.",
            missing=(rest[0], min(there.earliest, rest[1])),
            **facts,
        )
    if there.latest < rest[1]:
        raise NotArchived(
            asked + f"ends at {there.latest}.",
            hint=f"Ask for offsets before {there.latest}, or wait until there are more.",
            frontier=there.latest,
            **facts,
        )


def broker_frame(
    spark: SparkSession, settings: Settings, topic: str, ranges: Partitions, columns: Sequence[str] = COLUMNS
) -> DataFrame:
    """The committed records of the offsets `[from, to)` of partitions, through the broker; fails where it lacks any."""

    def edges(side: int) -> str:
        return json.dumps({topic: {str(partition): bounds[side] for partition, bounds in ranges.items()}})

    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("assign", json.dumps({topic: sorted(ranges)}))
        .option("startingOffsets", edges(0))
        .option("endingOffsets", edges(1))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", str(HEADERS in columns).lower())
        .load()
        .select(*schema(columns).names)
    )
