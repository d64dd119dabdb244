"""A range is cut where the archive ends, and what is in neither place is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.archive.plan import Bounds
from infra.archive.union import split
from infra.errors import LogGap, NotArchived
from infra.topics import PartitionOffsets


def broker(earliest: int, latest: int) -> PartitionOffsets:
    return PartitionOffsets(earliest=earliest, earliest_local=earliest, latest=latest, tiered=None)


def test_a_range_is_cut_at_the_frontier() -> None:
    archived = {0: Bounds(start=0, end=50), 1: Bounds(start=0, end=50), 2: Bounds(start=0, end=50)}
    ranges = {0: (10, 70), 1: (10, 50), 2: (50, 60), 3: (0, 5)}

    assert split("t", ranges, archived, dict.fromkeys(range(4), broker(0, 100))) == (
        {0: (10, 50), 1: (10, 50)},
        {0: (50, 70), 2: (50, 60), 3: (0, 5)},
    )


@given(st.lists(st.integers(0, 9), min_size=2, max_size=2).map(sorted), st.integers(0, 9))
def test_the_two_hold_each_offset_once(edges: list[int], frontier: int) -> None:
    first, second = split("t", {0: (edges[0], edges[1])}, {0: Bounds(start=0, end=frontier)}, {0: broker(0, 9)})

    both = [*range(*first.get(0, (0, 0))), *range(*second.get(0, (0, 0)))]
    assert both == list(range(*edges))
    assert all(offset < frontier for offset in range(*first.get(0, (0, 0))))


def test_what_neither_has_is_named() -> None:
    with pytest.raises(LogGap, match=r"ends before offsets \[50, 80\), and the broker begins at 60") as gap:
        split("t", {0: (10, 80)}, {0: Bounds(start=0, end=50)}, {0: broker(60, 100)})
    assert gap.value.facts["missing"] == (50, 60)


def test_the_end_of_the_log_is_named() -> None:
    with pytest.raises(NotArchived, match="the broker ends at 100"):
        split("t", {0: (10, 101)}, {}, {0: broker(0, 100)})
    with pytest.raises(LogGap, match="the broker has no such partition"):
        split("t", {7: (0, 1)}, {}, {0: broker(0, 100)})
