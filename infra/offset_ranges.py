"""Half-open ranges of offsets: intersection, difference, batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

Range = tuple[int, int]
Ranges = Mapping[int, Range]
"""One range per partition."""
RangesOf = Mapping[str, Ranges]
"""Ranges by topic."""
Spans = Mapping[int, Sequence[Range]]
"""Several ranges per partition, in order and disjoint."""


def condition(ranges: Ranges, partition: str, offset: str) -> str:
    """Writes a SQL condition, valid in any engine, that selects rows by the columns `partition` and `offset`."""
    parts = (f"({partition} = {p} AND {offset} >= {start} AND {offset} < {end})" for p, (start, end) in ranges.items())
    return " OR ".join(parts) or "false"


def spans(ranges: Ranges) -> dict[int, list[Range]]:
    """Converts one range per partition to a list of ranges per partition."""
    return {partition: [offsets] for partition, offsets in ranges.items()}


def joined(some: Iterable[Range]) -> list[Range]:
    """Merges ranges that overlap or touch; returns them in order."""
    ranges: list[Range] = []
    for start, end in sorted(some):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return ranges


def within(some: Spans, others: Spans) -> dict[int, list[Range]]:
    """Intersects two sets of ranges per partition; partitions without common offsets are left out."""
    common = {}
    for partition, here in some.items():
        met = _met(here, joined(others.get(partition, ())))
        shared = [(max(a, c), min(b, d)) for (a, b), there in met for c, d in there]
        if shared:
            common[partition] = shared
    return common


def without(whole: Range, taken: Iterable[Range]) -> list[Range]:
    """Subtracts ranges, which may overlap, from one range; returns the remaining ranges in order."""
    start, end = whole
    left = []
    for low, high in sorted(taken):
        if start < min(low, end):
            left.append((start, min(low, end)))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def subtract(some: Spans, taken: Spans) -> dict[int, list[Range]]:
    """Subtracts ranges from others per partition; partitions with no remaining offset are left out."""
    left = {}
    for partition, here in some.items():
        met = _met(here, joined(taken.get(partition, ())))
        left[partition] = [rest for one, there in met for rest in without(one, there)]
    return {partition: here for partition, here in left.items() if here}


def _met(here: Iterable[Range], others: Sequence[Range]) -> Iterator[tuple[Range, Sequence[Range]]]:
    """Yields each range with the overlapping ones of `others`, which are ordered and disjoint."""
    for start, end in here:
        first = bisect_right(others, start, key=itemgetter(1))
        yield (start, end), others[first : bisect_left(others, end, lo=first, key=itemgetter(0))]


def size(some: Spans) -> int:
    """Counts the offsets in the ranges."""
    return sum(end - start for here in some.values() for start, end in here)


def batches_of_size(some: Spans) -> Iterator[dict[int, Range]]:
    """Yields the ranges in rounds of at most one range per partition, in as few rounds as possible."""
    for nth in range(max(map(len, some.values()), default=0)):
        yield {partition: here[nth] for partition, here in some.items() if nth < len(here)}
