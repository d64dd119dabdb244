"""A range is cut where the archive ends or has a hole, and what is in neither place is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.infra.archive.log_union import Stretch, _require_meeting, _rounds, split
from twofold.infra.errors import LogGap, NotArchived
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold_archive.read_plan import ArchivedBounds

edges = st.lists(st.integers(0, 12), max_size=8, unique=True).map(sorted)


def broker(earliest: int, latest: int) -> PartitionOffsets:
    return PartitionOffsets(earliest=earliest, earliest_local=earliest, latest=latest, tiered=None)


def archived(*ranges: tuple[int, int]) -> list[ArchivedBounds]:
    return [ArchivedBounds(start=start, end=end) for start, end in ranges]


def stretches_of(found: dict[int, list[Stretch]]) -> dict[int, list[tuple[str, int, int]]]:
    return {p: [(part.source, part.start, part.end) for part in parts] for p, parts in found.items()}


def test_a_range_is_cut_at_the_frontier() -> None:
    has = dict.fromkeys(range(3), archived((0, 50)))
    ranges = {0: (10, 70), 1: (10, 50), 2: (50, 60), 3: (0, 5), 4: (7, 7)}

    assert stretches_of(split("t", ranges, has, dict.fromkeys(range(4), broker(0, 100)))) == {
        0: [("archive", 10, 50), ("broker", 50, 70)],
        1: [("archive", 10, 50)],
        2: [("broker", 50, 60)],
        3: [("broker", 0, 5)],
        4: [],
    }


def test_what_is_archived_behind_a_hole_is_not_asked_of_the_broker() -> None:
    found = split("t", {0: (5, 95)}, {0: archived((10, 20), (30, 60), (60, 90))}, {0: broker(0, 100)})
    assert stretches_of(found)[0] == [
        ("broker", 5, 10),
        ("archive", 10, 20),
        ("broker", 20, 30),
        ("archive", 30, 60),
        ("archive", 60, 90),
        ("broker", 90, 95),
    ]


@given(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted), edges)
def test_the_stretches_hold_each_offset_once(asked: list[int], marks: list[int]) -> None:
    has = archived(*zip(marks[::2], marks[1::2], strict=False))
    found = split("t", {0: (asked[0], asked[1])}, {0: has}, {0: broker(0, 12)})[0]

    assert [offset for part in found for offset in range(part.start, part.end)] == list(range(*asked))
    from_archive = {o for part in found if part.source == "archive" for o in range(part.start, part.end)}
    assert from_archive == {o for o in range(*asked) if any(b.start <= o < b.end for b in has)}


@given(st.dictionaries(st.integers(0, 2), edges))
def test_few_readings_hold_every_stretch_once(marks: dict[int, list[int]]) -> None:
    has = {p: archived(*zip(m[::2], m[1::2], strict=False)) for p, m in marks.items()}
    found = split("t", dict.fromkeys(has, (0, 12)), has, dict.fromkeys(has, broker(0, 12)))
    rounds = list(_rounds(found))

    read = [(p, source, *bounds) for source, part in rounds for p, bounds in part.items()]
    assert sorted(read) == sorted((p, s.source, s.start, s.end) for p, parts in found.items() for s in parts)
    for source in ("archive", "broker"):
        most = max((sum(s.source == source for s in parts) for parts in found.values()), default=0)
        assert sum(one == source for one, _ in rounds) == most


@pytest.mark.parametrize(
    "wrong", [[], [(0, 4)], [(1, 5)], [(0, 3), (2, 5)], [(0, 2), (3, 5)], [(0, 6)], [(3, 5), (0, 3)]]
)
def test_stretches_that_do_not_meet_are_refused(wrong: list[tuple[int, int]]) -> None:
    parts = [Stretch(start=start, end=end, source="archive") for start, end in wrong]
    with pytest.raises(LogGap, match=r"are not \[0, 5\) without gap or overlap"):
        _require_meeting("t", 0, (0, 5), parts)


def test_what_neither_has_is_named() -> None:
    has = {0: archived((0, 50), (70, 80))}
    with pytest.raises(LogGap, match=r"has no offsets \[50, 70\), and the broker begins at 60") as gap:
        split("t", {0: (10, 80)}, has, {0: broker(60, 100)})
    assert gap.value.facts["missing"] == (50, 60)
    assert split("t", {0: (10, 50)}, has, {0: broker(60, 100)})


def test_the_end_of_the_log_is_named() -> None:
    with pytest.raises(NotArchived, match="the broker ends at 100"):
        split("t", {0: (10, 101)}, {}, {0: broker(0, 100)})
    with pytest.raises(LogGap, match="the broker has no such partition"):
        split("t", {7: (0, 1)}, {}, {0: broker(0, 100)})
