"""Missed offsets are assigned to archive or broker one by one; only the rest is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.streaming.ingest.catch_up_plan import OffsetSegment, begin, chunks, offset_segments, stages
from twofold.tables.refresh.events.ingested_offsets import IngestedOffsets
from twofold_archive.read_plan import ArchivedBounds


def broker(earliest: int, local: int) -> PartitionOffsets:
    return PartitionOffsets(earliest=earliest, earliest_local=local, latest=1_000, tiered=None)


def archived(*ranges: tuple[int, int]) -> list[ArchivedBounds]:
    return [ArchivedBounds(start=start, end=end) for start, end in ranges]


def summary_of(found: list[OffsetSegment]) -> list[tuple[int, int, str]]:
    return [(leg.start, leg.end, leg.source) for leg in found]


def test_what_the_broker_moved_out_is_read_from_its_segments() -> None:
    assert summary_of(offset_segments(30, 30, broker(0, 80), archived((0, 100)))) == [(30, 80, "archive")]


def test_what_no_segment_has_is_read_through_the_broker_while_it_serves_it() -> None:
    assert summary_of(offset_segments(30, 30, broker(0, 80), archived((0, 50)))) == [
        (30, 50, "archive"),
        (50, 80, "broker"),
    ]
    assert summary_of(offset_segments(30, 30, broker(0, 80), [])) == [(30, 80, "broker")]


def test_what_no_copy_has_is_lost_and_says_why() -> None:
    found = offset_segments(30, 30, broker(70, 80), archived((0, 40), (50, 60)))
    assert summary_of(found) == [
        (30, 40, "archive"),
        (40, 50, "nowhere"),
        (50, 60, "archive"),
        (60, 70, "nowhere"),
        (70, 80, "broker"),
    ]
    assert found[1].why == "the broker's log begins at 70, and the archive has [0, 40), [50, 60) of the partition"
    assert offset_segments(30, 30, broker(80, 80), [])[0].why.endswith("the archive has nothing of the partition")


def test_what_was_ingested_is_read_again_where_it_can_be_and_never_lost() -> None:
    assert summary_of(offset_segments(30, 45, broker(60, 60), archived((35, 40)))) == [
        (35, 40, "archive"),
        (45, 60, "nowhere"),
    ]
    assert summary_of(offset_segments(30, 60, broker(60, 60), [])) == []


@given(
    st.lists(st.integers(0, 12), min_size=3, max_size=3).map(sorted),
    st.integers(0, 12),
    st.lists(st.integers(0, 12), max_size=6, unique=True).map(sorted),
)
def test_legs_cover_all_that_is_missing_once_and_in_order(marks: list[int], ingested: int, edges: list[int]) -> None:
    start, earliest, local = marks
    has = archived(*zip(edges[::2], edges[1::2], strict=False))
    found = offset_segments(start, ingested, broker(earliest, local), has)

    covered = [offset for leg in found for offset in range(leg.start, leg.end)]
    readable = {o for o in range(start, local) if o >= earliest or any(b.start <= o < b.end for b in has)}
    assert covered == sorted(set(covered))
    assert set(covered) == readable | set(range(max(start, ingested), local))
    lost = {o for leg in found if leg.source == "nowhere" for o in range(leg.start, leg.end)}
    assert lost == set(range(max(start, ingested), local)) - readable


def test_a_stream_begins_where_its_newest_unfinished_micro_batch_did() -> None:
    frontier = IngestedOffsets(ends={0: 50, 1: 70}, starts={0: 40})
    assert begin(frontier, 0, None) == 40
    assert begin(frontier, 0, 40) == 40
    assert begin(frontier, 0, 50) == 50
    assert begin(frontier, 1, None) == 70
    assert begin(frontier, 1, 20) == 70
    assert begin(frontier, 2, None) is None
    assert begin(frontier, 2, 5) == 5


def test_legs_stay_in_order_by_partition_and_together_by_source() -> None:
    a, b = OffsetSegment(start=0, end=5, source="archive"), OffsetSegment(start=5, end=9, source="nowhere", why="gone")
    order = [(source, {t: list(found) for t, found in stage.items()}) for source, stage in stages({
        "t": {0: [a, b], 1: [b]}, "u": {0: [a]},
    })]  # fmt: skip
    assert order == [("nowhere", {"t": [1]}), ("archive", {"t": [0], "u": [0]}), ("nowhere", {"t": [0]})]


@given(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=3),
    st.integers(1, 30),
)
def test_chunks_hold_each_offset_once_and_are_as_small_as_asked(sizes: dict[int, tuple[int, int]], most: int) -> None:
    ranges = {"t": {p: (start, start + size) for p, (start, size) in sizes.items()}}
    taken: dict[int, list[int]] = {p: [] for p in sizes}
    for chunk in chunks(ranges, most):
        assert sum(end - start for start, end in chunk["t"].values()) <= most + len(sizes)
        for partition, (start, end) in chunk["t"].items():
            taken[partition] += range(start, end)
    assert taken == {p: list(range(*bounds)) for p, bounds in ranges["t"].items()}
