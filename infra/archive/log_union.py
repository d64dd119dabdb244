"""Reads a range of the log from the archive as far as it reaches, and from the broker for the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from twofold.infra.archive.archive_frame import frame
from twofold.infra.errors import LogGap, NotArchived
from twofold.infra.kafka.spark_source import source_options
from twofold.infra.kafka.topic_admin import PartitionOffsets, offsets
from twofold.infra.offset_ranges import Ranges, batches_of_size
from twofold.infra.project.settings import Settings
from twofold_archive.format.record_columns import COLUMNS, HEADERS, schema
from twofold_archive.read_plan import Archive, ArchivedBounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source = Literal["archive", "broker"]


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Offsets `[start, end)` of a partition that are read from one source."""

    start: int
    end: int
    source: Source


def log_frame(
    spark: SparkSession,
    settings: Settings,
    archive: Archive,
    topic: str,
    ranges: Ranges,
    columns: Sequence[str] = COLUMNS,
) -> DataFrame:
    """Reads the committed records with offsets `[from, to)`, each once, in no order, from archive and broker.

    Raises:
        NotArchived: a range goes beyond the end of the log.
        LogGap: neither the archive nor the broker has all of a range; names what is missing.
        BrokerUnreachable: retryable.
        as Archive.plan: before a job starts.
    """
    parts = split(topic, ranges, archive.runs(topic), offsets(settings, [topic]).get(topic, {}))
    frames = [
        frame(spark, archive, {topic: part}, columns)
        if source == "archive"
        else broker_frame(spark, settings, topic, part, columns)
        for source, part in _rounds(parts)
    ]
    return reduce(lambda one, other: one.unionByName(other), frames or [frame(spark, archive, {}, columns)])


def split(
    topic: str, ranges: Ranges, archived: Mapping[int, Sequence[ArchivedBounds]], broker: Mapping[int, PartitionOffsets]
) -> dict[int, list[Stretch]]:
    """Splits each range between archive and broker, without gap or overlap; an empty range gives no part.

    Args:
        archived: ranges of each partition that the archive has, in order.
        broker: how far the broker's log reaches.

    Raises:
        NotArchived: a range goes beyond the end of the log.
        LogGap: neither the archive nor the broker has an offset of a range.
    """
    found = {}
    for partition, (start, end) in sorted(ranges.items()):
        found[partition] = parts = stretches(start, end, archived.get(partition, ()))
        _require_meeting(topic, partition, (start, end), parts)
        for part in parts:
            if part.source == "broker":
                _require_on_broker(topic, partition, part, broker.get(partition))
    return found


def stretches(start: int, end: int, archived: Sequence[ArchivedBounds]) -> list[Stretch]:
    """Splits the offsets `[start, end)` of a partition, in order, between the archive and the broker.

    Args:
        archived: ranges that the archive has, in order.
    """
    joined: list[Stretch] = []
    at = start
    for bounds in archived:
        first, until = max(at, bounds.start), min(end, bounds.end)
        if first >= until:
            continue
        if at < first:
            joined.append(Stretch(start=at, end=first, source="broker"))
        joined.append(Stretch(start=first, end=until, source="archive"))
        at = until
    if at < end:
        joined.append(Stretch(start=at, end=end, source="broker"))
    return joined


def _require_meeting(topic: str, partition: int, asked: tuple[int, int], stretches: Sequence[Stretch]) -> None:
    """Refuses parts that leave an offset out or hold it twice."""
    edges = [asked[0], *(edge for part in stretches for edge in (part.start, part.end)), asked[1]]
    if any(one != other for one, other in list(pairwise(edges))[::2]):
        raise LogGap(
            f"{topic}, partition {partition}: {[(s.source, s.start, s.end) for s in stretches]} are not "
            f"[{asked[0]}, {asked[1]}) without gap or overlap."
        )


def _require_on_broker(topic: str, partition: int, part: Stretch, there: PartitionOffsets | None) -> None:
    asked = f"{topic}, partition {partition}: the archive has no offsets [{part.start}, {part.end}), and the broker "
    facts = {"topic": topic, "partition": partition, "asked": (part.start, part.end)}
    if there is None:
        raise LogGap(asked + "has no such partition.", hint="Check the topic and the partition.", **facts)
    if there.earliest > part.start:
        missing = part.start, min(there.earliest, part.end)
        raise LogGap(
            asked + f"begins at {there.earliest}.",
            hint=f"Offsets [{missing[0]}, {missing[1]}) are in neither; ask for the others.",
            missing=missing,
            **facts,
        )
    if there.latest < part.end:
        raise NotArchived(
            asked + f"ends at {there.latest}.",
            hint=f"Ask for offsets before {there.latest}, or wait until there are more.",
            frontier=there.latest,
            **facts,
        )


def _rounds(stretches: Mapping[int, Sequence[Stretch]]) -> Iterator[tuple[Source, dict[int, tuple[int, int]]]]:
    """Yields the parts in as few reads as possible: each read has one source and at most one part per partition."""
    sources: tuple[Source, ...] = ("archive", "broker")
    for source in sources:
        by_partition = {p: [(s.start, s.end) for s in parts if s.source == source] for p, parts in stretches.items()}
        yield from ((source, part) for part in batches_of_size(by_partition))


def broker_frame(
    spark: SparkSession, settings: Settings, topic: str, ranges: Ranges, columns: Sequence[str] = COLUMNS
) -> DataFrame:
    """Reads the committed records with offsets `[from, to)` of partitions from the broker; fails if it lacks any."""

    def edges(side: int) -> str:
        return json.dumps({topic: {str(partition): bounds[side] for partition, bounds in ranges.items()}})

    return (
        spark.read.format("kafka")
        .options(**source_options(settings, headers=HEADERS in columns))
        .option("assign", json.dumps({topic: sorted(ranges)}))
        .option("startingOffsets", edges(0))
        .option("endingOffsets", edges(1))
        .load()
        .select(*schema(columns).names)
    )
