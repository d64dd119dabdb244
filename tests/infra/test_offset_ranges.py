"""Ranges of offsets hold what the sets of their offsets hold."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twofold.infra.offset_ranges import Range, Spans, batches_of_size, joined, size, subtract, within, without

EDGES = st.integers(0, 30)
RANGES = st.lists(st.tuples(EDGES, EDGES).map(sorted).map(tuple).filter(lambda r: r[0] < r[1]), max_size=8)
SPANS = st.dictionaries(st.integers(0, 2), RANGES.map(joined))
OVERLAPPING = st.dictionaries(st.integers(0, 2), RANGES)


def offsets(some: Spans) -> set[tuple[int, int]]:
    return {(p, offset) for p, here in some.items() for start, end in here for offset in range(start, end)}


def apart(some: Spans) -> bool:
    """Each partition has ranges, in order, none of them empty, with something between two."""
    return all(
        here and all(a < b for a, b in here) and all(one[1] < other[0] for one, other in pairwise(here))
        for here in some.values()
    )


@given(RANGES)
def test_joined_are_the_same_offsets_in_order_and_apart(ranges: list[Range]) -> None:
    found = {0: joined(ranges)}
    assert offsets(found) == offsets({0: ranges})
    assert apart(found) or not ranges


@given(SPANS, OVERLAPPING)
def test_what_both_have_and_what_is_left(some: Spans, others: Spans) -> None:
    shared, left = within(some, others), subtract(some, others)
    assert offsets(shared) == offsets(some) & offsets(others)
    assert offsets(left) == offsets(some) - offsets(others)
    assert apart(shared)
    assert apart(left)
    assert size(shared) + size(left) == size(some) == len(offsets(some))


@given(st.tuples(EDGES, EDGES), RANGES)
def test_a_range_without_others(whole: Range, taken: list[Range]) -> None:
    left = without(whole, taken)
    assert offsets({0: left}) == offsets({0: [whole]}) - offsets({0: taken})


@given(SPANS)
def test_rounds_give_every_range_once(some: Spans) -> None:
    told = [(p, one) for part in batches_of_size(some) for p, one in part.items()]
    assert sorted(told) == sorted((p, one) for p, here in some.items() for one in here)
