"""Half-open ranges of offsets: what they share, what is left of one without others, and how to read several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

Range = tuple[int, int]
Ranges = Mapping[int, Range]
"""Of each partition one."""
RangesOf = Mapping[str, Ranges]
"""Of each topic."""
Spans = Mapping[int, Sequence[Range]]
"""Of each partition several, in order and apart from each other."""


def spans(ranges: Ranges) -> dict[int, list[Range]]:
    """One range of each partition, as several are told."""
    return {partition: [one] for partition, one in ranges.items()}


def within(some: Spans, others: Spans) -> dict[int, list[Range]]:
    """What lies in both; partitions without any are left out."""
    found = {}
    for partition, here in some.items():
        there = others.get(partition, ())
        shared = [(max(a, c), min(b, d)) for a, b in here for c, d in there if max(a, c) < min(b, d)]
        if shared:
            found[partition] = shared
    return found


def without(whole: Range, taken: Iterable[Range]) -> list[Range]:
    """What is left of a range, in order, once others are taken out of it; these may overlap."""
    start, end = whole
    left = []
    for low, high in sorted(taken):
        if start < min(low, end):
            left.append((start, min(low, end)))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def less(some: Spans, taken: Spans) -> dict[int, list[Range]]:
    """What is left of some; partitions without any are left out."""
    left = {p: [rest for one in here for rest in without(one, taken.get(p, ()))] for p, here in some.items()}
    return {partition: here for partition, here in left.items() if here}


def size(some: Spans) -> int:
    """How many offsets they hold."""
    return sum(end - start for here in some.values() for start, end in here)


def rounds(some: Spans) -> Iterator[dict[int, Range]]:
    """All of them, one of each partition at a time: as many as the partition with most has."""
    for nth in range(max(map(len, some.values()), default=0)):
        yield {partition: here[nth] for partition, here in some.items() if nth < len(here)}
