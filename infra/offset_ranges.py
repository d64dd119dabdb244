"""Half-open ranges of offsets: intersection, difference, batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

Range = tuple[int, int]
Ranges = Mapping[int, Range]
"""Of each partition one."""
RangesOf = Mapping[str, Ranges]
"""Of each topic."""
Spans = Mapping[int, Sequence[Range]]
"""Of each partition several, in order and apart from each other."""


def condition(ranges: Ranges, partition: str, offset: str) -> str:
    """The condition that selects rows of these offsets, of columns `partition` and `offset`, in any engine's SQL."""
    parts = (f"({partition} = {p} AND {offset} >= {start} AND {offset} < {end})" for p, (start, end) in ranges.items())
    return " OR ".join(parts) or "false"


def spans(ranges: Ranges) -> dict[int, list[Range]]:
    """One range of each partition, in the form of several."""
    return {partition: [one] for partition, one in ranges.items()}


def joined(some: Iterable[Range]) -> list[Range]:
    """Join ranges that overlap or touch, in order."""
    ranges: list[Range] = []
    for start, end in sorted(some):
        if ranges and start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
        else:
            ranges.append((start, end))
    return ranges


def within(some: Spans, others: Spans) -> dict[int, list[Range]]:
    """The offsets that are in both; partitions without any are left out."""
    common = {}
    for partition, here in some.items():
        met = _met(here, joined(others.get(partition, ())))
        shared = [(max(a, c), min(b, d)) for (a, b), there in met for c, d in there]
        if shared:
            common[partition] = shared
    return common


def without(whole: Range, taken: Iterable[Range]) -> list[Range]:
    """The rest of a range, in order, without others, which may overlap."""
    start, end = whole
    left = []
    for low, high in sorted(taken):
        if start < min(low, end):
            left.append((start, min(low, end)))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def subtract(some: Spans, taken: Spans) -> dict[int, list[Range]]:
    """The rest of some ranges without others; partitions without any are left out."""
    left = {}
    for partition, here in some.items():
        met = _met(here, joined(taken.get(partition, ())))
        left[partition] = [rest for one, there in met for rest in without(one, there)]
    return {partition: here for partition, here in left.items() if here}


def _met(here: Iterable[Range], others: Sequence[Range]) -> Iterator[tuple[Range, Sequence[Range]]]:
    """Each range with those of others, which are in order and disjoint, that share offsets with it."""
    for start, end in here:
        first = bisect_right(others, start, key=itemgetter(1))
        yield (start, end), others[first : bisect_left(others, end, lo=first, key=itemgetter(0))]


def size(some: Spans) -> int:
    """The number of offsets that they hold."""
    return sum(end - start for here in some.values() for start, end in here)


def batches_of_size(some: Spans) -> Iterator[dict[int, Range]]:
    """All of them, one of each partition at a time: as many as the partition with most has."""
    for nth in range(max(map(len, some.values()), default=0)):
        yield {partition: here[nth] for partition, here in some.items() if nth < len(here)}
