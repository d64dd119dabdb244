"""Plans a catch-up: the offsets between events table and broker that the archive has, and those that are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from twofold.infra.archive.log_union import stretches
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.infra.offset_ranges import Range, RangesOf
from twofold.tables.refresh.events.ingested_offsets import IngestedOffsets
from twofold_archive.read_plan import ArchivedBounds

Source = Literal["archive", "broker", "nowhere"]


@dataclass(frozen=True, kw_only=True)
class OffsetSegment:
    """Offsets `[start, end)` of a partition that one source has.

    Attributes:
        source: `archive`: its segments; `broker`: it reads them from tiered storage; `nowhere`: they are lost.
        why: the sources that lack them; empty unless they are lost.
    """

    start: int
    end: int
    source: Source
    why: str = ""


def begin(frontier: IngestedOffsets, partition: int, checkpointed: int | None) -> int | None:
    """Returns the first offset that events and quarantine may not both cover; None if none was ever read.

    Args:
        checkpointed: the offset at which the query would continue by its checkpoint; None: it has none.
    """
    # The newest micro-batch may lack its quarantine, unless the query has ended it.
    ingested_from = frontier.starts.get(partition, frontier.ends.get(partition))
    return max((offset for offset in (ingested_from, checkpointed) if offset is not None), default=None)


def offset_segments(
    start: int, ingested: int, broker: PartitionOffsets, archived: Sequence[ArchivedBounds]
) -> list[OffsetSegment]:
    """Splits the offsets from `start` to the start of the broker's local log by the source that has them, in order.

    Args:
        ingested: the first offset that is not in the events table. Earlier ones are read again if possible, and never
            count as lost.
        archived: ranges of the partition that the archive has, in order.
    """
    segments: list[OffsetSegment] = []
    for part in stretches(start, broker.earliest_local, archived):
        if part.source == "archive":
            segments.append(OffsetSegment(start=part.start, end=part.end, source="archive"))
        else:
            segments += _without_archive(part.start, part.end, ingested, broker, archived)
    return segments


def _without_archive(
    start: int, end: int, ingested: int, broker: PartitionOffsets, archived: Sequence[ArchivedBounds]
) -> Iterator[OffsetSegment]:
    lost, served = (max(start, ingested), min(end, broker.earliest)), (max(start, broker.earliest), end)
    if lost[0] < lost[1]:
        has = ", ".join(f"[{bounds.start}, {bounds.end})" for bounds in archived) or "nothing"
        why = f"the broker's log begins at {broker.earliest}, and the archive has {has} of the partition"
        yield OffsetSegment(start=lost[0], end=lost[1], source="nowhere", why=why)
    if served[0] < served[1]:
        yield OffsetSegment(start=served[0], end=served[1], source="broker")


def stages(
    plans: Mapping[str, Mapping[int, Sequence[OffsetSegment]]],
) -> Iterator[tuple[Source, dict[str, dict[int, OffsetSegment]]]]:
    """Yields the segments of all partitions, grouped by source, in an order that keeps the order of each partition."""
    flat = [(topic, partition, found) for topic, partitions in plans.items() for partition, found in partitions.items()]
    for nth in zip_longest(*(found for _, _, found in flat)):
        for source in ("nowhere", "archive", "broker"):
            stage: dict[str, dict[int, OffsetSegment]] = {}
            for (topic, partition, _), leg in zip(flat, nth, strict=True):
                if leg is not None and leg.source == source:
                    stage.setdefault(topic, {})[partition] = leg
            if stage:
                yield source, stage


def chunks(ranges: RangesOf, most: int) -> Iterator[dict[str, dict[int, Range]]]:
    """Splits ranges into chunks of about `most` offsets, each with the same share of every range."""
    records = sum(end - start for partitions in ranges.values() for start, end in partitions.values())
    count = -(-records // most)
    for number in range(count):
        chunk: dict[str, dict[int, Range]] = {}
        for topic, partitions in ranges.items():
            for partition, (start, end) in partitions.items():
                low, high = (start + (end - start) * n // count for n in (number, number + 1))
                if low < high:
                    chunk.setdefault(topic, {})[partition] = (low, high)
        if chunk:
            yield chunk
