"""Plans a read of archived topics: segments and their parts for a range of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twofold_archive.format.archive_errors import BadArgument, LogGap, NotArchived
from twofold_archive.format.segment import Segment
from twofold_archive.format.segment_indexes import (
    Aborted,
    OffsetIndex,
    aborted_transactions,
    offset_index,
    open_transactions,
)
from twofold_archive.format.segment_store import Store
from twofold_archive.segment_manifest import ArchivedPartition, Piece
from twofold_archive.segment_reader import Part

RangesOf = Mapping[str, Mapping[int, tuple[int, int]]]
"""Topic -> partition -> the offsets `[from, to)`."""
SPLIT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class ArchivedBounds:
    """The offsets `[start, end)` of a partition that can be read from the archive alone.

    The frontier `end` is the end of the archive, a hole in it, or the start of the first transaction whose end is not
    archived: only the broker knows whether its records are visible.
    """

    start: int
    end: int


class Archive:
    """The archived log of some topics, as in the broker's metadata at one moment.

    Args:
        partitions: topic -> partition -> what is archived.
        compacted: offsets may be missing, since a topic was compacted before it was tiered. A batch whose offset was
            damaged is then found by the order of offsets only.
        split_bytes: a segment that is larger is read in parts of about this size.
    """

    def __init__(
        self,
        store: Store,
        partitions: Mapping[str, Mapping[int, ArchivedPartition]],
        *,
        compacted: bool = False,
        split_bytes: int = SPLIT_BYTES,
    ) -> None:
        self.store, self.partitions = store, partitions
        self._compacted, self._split_bytes = compacted, split_bytes
        self._unfinished: dict[Segment, list[int]] = {}

    def bounds(self, topic: str) -> dict[int, ArchivedBounds]:
        """Returns the archived bounds by partition of a topic; a partition without archived records is left out.

        Raises:
            CorruptSegment: the producers' snapshot, which gives the frontier, is damaged.
        """
        return {partition: runs[0] for partition, runs in self.runs(topic).items()}

    def runs(self, topic: str) -> dict[int, list[ArchivedBounds]]:
        """Returns the readable ranges by partition, in order; more than one if there are holes.

        Raises:
            as `bounds`.
        """
        return {partition: list(self._runs(found)) for partition, found in self.partitions.get(topic, {}).items()}

    def _runs(self, partition: ArchivedPartition) -> Iterator[ArchivedBounds]:
        for start in (partition.start, *(after for _, after in partition.holes())):
            yield ArchivedBounds(start=start, end=self._frontier(partition.run(start)))

    def size(self, topic: str) -> int:
        """Returns the size of the topic's segments in bytes, without their indexes."""
        pieces = (piece for partition in self.partitions.get(topic, {}).values() for piece in partition.pieces)
        return sum({piece.segment.id: piece.segment.size for piece in pieces}.values())

    def plan(self, ranges: RangesOf, split_bytes: int | None = None) -> list[Part]:
        """Plans the parts that hold the offsets `[from, to)` of partitions: one per segment, several for a large one.

        Args:
            split_bytes: a segment that is larger is read in parts of about this size; None: as the archive was opened.

        Raises:
            NotArchived: a range ends beyond the frontier of its partition, which it names. Nothing of it is read.
            LogGap: a range begins before the archive does, or meets a hole in it.
            BadArgument: a range that ends before it begins.
            CorruptSegment: an index is damaged.
        """
        return [
            part
            for topic, partitions in ranges.items()
            for partition, (start, end) in sorted(partitions.items())
            for part in self._plan(topic, partition, start, end, split_bytes or self._split_bytes)
        ]

    def _plan(self, topic: str, partition: int, start: int, end: int, split_bytes: int) -> Iterator[Part]:
        if not 0 <= start <= end:
            raise BadArgument(
                f"{topic}, partition {partition}: [{start}, {end}) is no range of offsets.",
                hint="Write the first offset, then the one after the last.",
            )
        if start == end:
            return
        pieces = self._pieces(topic, partition, start, end)
        aborted = self._aborted(pieces, start, end)
        for piece in pieces:
            first, until = max(start, piece.start), min(end, piece.end)
            if first < until:
                yield from self._parts(piece.segment, first, until, aborted, split_bytes)

    def _pieces(self, topic: str, partition: int, start: int, end: int) -> tuple[Piece, ...]:
        """Returns the consecutive pieces, without a hole between them, that hold the range."""
        asked = f"{topic}, partition {partition}: offsets [{start}, {end}) are asked for, and the archive "
        facts = {"topic": topic, "partition": partition, "asked": (start, end)}
        archived = self.partitions.get(topic, {}).get(partition)
        if archived is None:
            raise NotArchived(
                asked + "has nothing of the partition yet.",
                hint="A segment comes when the broker has closed and copied it; the topic must be tiered.",
                frontier=None,
                **facts,
            )
        if start < archived.start:
            raise LogGap(
                asked + f"begins at {archived.start}.",
                hint=f"Ask for offsets from {archived.start} on; segments before it were deleted.",
                start=archived.start,
                **facts,
            )
        for low, high in archived.holes():
            if low < end and start < high:
                raise LogGap(
                    asked + f"has no segment for [{low}, {high}).",
                    hint="Ask for the ranges around the hole; the broker's log says what deleted them.",
                    hole=(low, high),
                    **facts,
                )
        run = archived.run(start)
        frontier = self._frontier(run) if run else archived.pieces[-1].end
        if end > frontier:
            raise NotArchived(
                asked + f"reaches up to {frontier}, its frontier.",
                hint=f"Ask for offsets before {frontier}, or wait until the broker closes and copies more.",
                frontier=frontier,
                **facts,
            )
        return run

    def _frontier(self, run: tuple[Piece, ...]) -> int:
        """Returns the first offset whose visibility these pieces do not decide alone."""
        whole = [piece for piece in run if _is_whole(piece)]
        if not whole:
            return run[0].start
        return max(run[0].start, min([whole[-1].end, *self._open_after(whole[-1])]))

    def _open_after(self, piece: Piece) -> list[int]:
        """Returns the first offsets of the transactions that are open at the end of a segment."""
        segment = piece.segment
        if segment not in self._unfinished:
            self._unfinished[segment] = open_transactions(self.store, segment)
        return self._unfinished[segment]

    def _aborted(self, pieces: tuple[Piece, ...], start: int, end: int) -> list[Aborted]:
        """Returns the aborted transactions that overlap the range; the end of one may be in a later segment."""
        aborted: list[Aborted] = []
        concerned = [piece for piece in pieces if piece.end > start]
        for number, piece in enumerate(concerned):
            if piece.segment.may_have_aborts:
                here = aborted_transactions(self.store, piece.segment)
                aborted += [a for a in here if a.first < end and a.last >= start]
            if not any(later.segment.may_have_aborts for later in concerned[number + 1 :]):
                break
            if piece.end >= end and _is_whole(piece) and min(self._open_after(piece), default=end) >= end:
                break
        return aborted

    def _parts(
        self, segment: Segment, start: int, end: int, aborted: list[Aborted], split_bytes: int
    ) -> Iterator[Part]:
        if (start, end) == (segment.start, segment.end) and segment.size <= split_bytes:
            yield self._part(segment, None, start, end, aborted)
            return
        index = offset_index(self.store, segment)
        while start < end:
            position, _ = index.before(start)
            until = min(end, index.offset_at(position + split_bytes) or end)
            yield self._part(segment, index, start, until, aborted)
            start = until

    def _part(self, segment: Segment, index: OffsetIndex | None, start: int, end: int, aborted: list[Aborted]) -> Part:
        position, anchor = index.before(start) if index else (0, None)
        return Part(
            segment=segment,
            start=start,
            end=end,
            position=position,
            anchor=anchor,
            stop=index.after(end, segment.size) if index else segment.size,
            aborted=tuple(a for a in aborted if a.first < end and a.last >= start),
            contiguous=not self._compacted,
        )


def _is_whole(piece: Piece) -> bool:
    """Whether the end of the segment is valid: no later leader overwrote it, so its producers' snapshot applies."""
    return piece.end == piece.segment.end
