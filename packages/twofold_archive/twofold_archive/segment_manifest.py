"""Maps offsets of a partition to archived segments, from the broker's metadata records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_metadata import Announced, PartitionDeleted, Record, State, Updated


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The offsets `[start, end)` of a segment that belong to the log: all of them, unless leaders overlapped."""

    segment: Segment
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ArchivedPartition:
    """The archived log of a partition: pieces in order; there is a hole between pieces that do not meet."""

    topic: str
    partition: int
    pieces: tuple[Piece, ...]

    @property
    def start(self) -> int:
        """The first archived offset."""
        return self.pieces[0].start

    def run(self, offset: int) -> tuple[Piece, ...]:
        """Returns the pieces from the one with this offset up to the next hole; empty if no piece has it."""
        run: list[Piece] = []
        for piece in self.pieces:
            if (run and run[-1].end == piece.start) or (not run and piece.start <= offset < piece.end):
                run.append(piece)
            elif run:
                break
        return tuple(run)

    @property
    def bytes(self) -> int:
        """The size in bytes of the logs of its segments."""
        return sum({piece.segment: piece.segment.size for piece in self.pieces}.values())

    def segment_of(self, offset: int) -> Segment | None:
        """Returns the segment that holds an offset, or None if none does."""
        run = self.run(offset)
        return run[0].segment if run else None

    def holes(self) -> list[tuple[int, int]]:
        """Returns the offset ranges `[from, to)` between pieces that no segment holds."""
        return [(before.end, after.start) for before, after in pairwise(self.pieces) if before.end != after.start]


def copied_segments(records: Iterable[Record]) -> list[Segment]:
    """Filters segments to those that are copied completely and are not being deleted.

    Args:
        records: those of one segment are in the order of writing.
    """
    segments: dict[UUID, Segment] = {}
    states: dict[UUID, State] = {}
    deleted: set[tuple[UUID, int]] = set()
    for record in records:
        if isinstance(record, Announced):
            segments[record.segment.id] = record.segment
            states[record.segment.id] = record.state
        elif isinstance(record, PartitionDeleted):
            deleted.add((record.topic_id, record.partition))
        elif isinstance(record, Updated) and record.id in segments:
            states[record.id] = record.state
            if record.custom is not None:
                segments[record.id] = replace(segments[record.id], custom=record.custom)
    return [
        segment
        for identity, segment in segments.items()
        if states[identity] == "copied" and (segment.topic_id, segment.partition) not in deleted
    ]


def archived(segments: Sequence[Segment], topic_ids: Mapping[str, UUID]) -> dict[str, dict[int, ArchivedPartition]]:
    """Returns the archived offsets by topic and partition; partitions without any are left out.

    Args:
        topic_ids: ids of the requested topics; segments of a deleted topic of the same name have another id.
    """
    grouped: dict[tuple[str, int], list[Segment]] = {}
    for segment in segments:
        if topic_ids.get(segment.topic) == segment.topic_id:
            grouped.setdefault((segment.topic, segment.partition), []).append(segment)
    by_topic: dict[str, dict[int, ArchivedPartition]] = {}
    for (topic, partition), group in sorted(grouped.items()):
        pieces = tuple(_pieces(group))
        if pieces:
            by_topic.setdefault(topic, {})[partition] = ArchivedPartition(
                topic=topic, partition=partition, pieces=pieces
            )
    return by_topic


def _pieces(segments: Sequence[Segment]) -> Iterable[Piece]:
    """Yields pieces without overlap: at each offset the longest segment whose leader epoch is valid there."""
    reigns = _reigns(segments)
    candidates = [piece for segment in segments for piece in _valid(segment, reigns)]
    at = min((piece.start for piece in candidates), default=0)
    while candidates:
        candidates = [piece for piece in candidates if piece.end > at]
        here = [piece for piece in candidates if piece.start <= at]
        if here:
            chosen = max(here, key=lambda piece: (piece.end, piece.segment.copied_ms, piece.segment.id))
            yield replace(chosen, start=at)
            at = chosen.end
        elif candidates:
            at = min(piece.start for piece in candidates)


def _reigns(segments: Sequence[Segment]) -> dict[int, tuple[int, float]]:
    """Maps each leader epoch to the offsets `[from, to)` for which it is valid: up to the start of a later epoch.

    A leader that was elected without the last records of its predecessor wrote its own records at their offsets.
    """
    begins: dict[int, int] = {}
    for segment in segments:
        for epoch, offset in segment.epochs:
            begins[epoch] = min(offset, begins.get(epoch, offset))
    reigns: dict[int, tuple[int, float]] = {}
    end = float("inf")
    for epoch in sorted(begins, reverse=True):
        reigns[epoch] = (begins[epoch], end)
        end = min(end, begins[epoch])
    return reigns


def _valid(segment: Segment, reigns: Mapping[int, tuple[int, float]]) -> Iterable[Piece]:
    """Yields the ranges of the segment's offsets whose leader epoch is valid there."""
    bounds = [*segment.epochs, (-1, segment.end)]
    start = end = None
    for (epoch, first), (_, after) in pairwise(bounds):
        low = max(first, segment.start)
        high = int(min(after, segment.end, reigns[epoch][1]))
        if low >= high:
            continue
        if end != low:
            if start is not None and end is not None:
                yield Piece(segment=segment, start=start, end=end)
            start = low
        end = high
    if start is not None and end is not None:
        yield Piece(segment=segment, start=start, end=end)
