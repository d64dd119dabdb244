"""A range that cannot be read whole yet is refused with its frontier; nothing of it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.batch.audit.two_copies import TOPIC, TwoCopies
from tests.tables.declared import READINGS, a_topic
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.rewrite.replay import decode
from twofold.infra.duckdb_session import duckdb_utc
from twofold.infra.errors import BadArgument, NotArchived
from twofold.infra.offset_ranges import Range, batches_of_size, size, subtract, within, without
from twofold.tables.declare.record_fields import key
from twofold.testing.worlds import World
from twofold_algebra.sql.names import DUCKDB

if TYPE_CHECKING:
    from twofold.infra.project.settings import Settings


@pytest.fixture
def copies(seven_records: World, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoCopies:
    """Seven records, all ingested, of which five are archived."""
    return TwoCopies.of_world(seven_records.copied_to(settings), tmp_path / "archive", monkeypatch)


def meant(copies: TwoCopies, span: OffsetSelection, now: datetime | None = None) -> dict[int, Range]:
    return copies.log.ranges(copies.world.registry.topics[TOPIC], span, now or datetime.now(UTC))


def appended(copies: TwoCopies) -> list[datetime]:
    """When the two micro-batches were appended, offsets 0 to 3 and 4 to 6."""
    rows = copies.world.rows(TOPIC).to_pylist()
    return sorted({row["_appended_at"] for row in rows})


@pytest.mark.spark
def test_ranges_by_offset(copies: TwoCopies) -> None:
    for span, found in (
        (OffsetSelection(), {0: (0, 7)}),
        (OffsetSelection(partitions=[0]), {0: (0, 7)}),
        (OffsetSelection(start={0: 2}, end={0: 6}), {0: (2, 6)}),
        (OffsetSelection(start={}), {}),
        (OffsetSelection(start={0: 3}, end={0: 3}), {}),
        (OffsetSelection(archived=True), {0: (0, 5)}),
        (OffsetSelection(end={0: 5}, archived=True), {0: (0, 5)}),
    ):
        assert meant(copies, span) == found
    for span, message in (
        (OffsetSelection(end={0: 8}), r"\[0, 8\) ends beyond 7, the frontier of what is ingested"),
        (OffsetSelection(start={0: 8}), "ends beyond 7"),
        (OffsetSelection(end={0: 6}, archived=True), r"\[0, 6\) ends beyond 5, the frontier of the archive"),
        (OffsetSelection(start={0: 6}, archived=True), "ends beyond 5"),
    ):
        with pytest.raises(NotArchived, match=message) as refused:
            meant(copies, span)
        assert refused.value.facts["frontier"] in (5, 7)
    for span, message in (
        (OffsetSelection(start={0: 3}, end={0: 2}), "is before the start"),
        (OffsetSelection(start={4: 0}), r"start names the partitions \[4\]"),
        (OffsetSelection(partitions=[0, 1]), r"partitions names the partitions \[1\]"),
    ):
        with pytest.raises(BadArgument, match=message):
            meant(copies, span)


@pytest.mark.spark
def test_a_hole_is_not_the_end_of_the_archive(copies: TwoCopies) -> None:
    copies.segments = [(0, 2), (3, 5)]
    assert meant(copies, OffsetSelection(archived=True)) == {0: (0, 5)}
    assert meant(copies, OffsetSelection(start={0: 3}, archived=True)) == {0: (3, 5)}
    topic = copies.world.registry.topics[TOPIC]
    offsets = [row["offset"] for row in copies.log.read(topic, {0: (1, 5)}).collect()]
    assert sorted(offsets) == [1, 2, 3, 4], "the broker has offset 2"


@pytest.mark.spark
def test_a_range_of_time_ends_where_all_before_it_is_certain_to_be_in(copies: TwoCopies) -> None:
    first, second = appended(copies)
    after, now = second + timedelta(microseconds=1), second + timedelta(seconds=1)
    assert meant(copies, OffsetSelection(start=second), now) == {0: (4, 7)}
    assert meant(copies, OffsetSelection(start=first, end=second), now) == {0: (0, 4)}
    assert meant(copies, OffsetSelection(end=after), now) == {0: (0, 7)}, "the broker has no more"
    with pytest.raises(NotArchived, match="records go on to be appended before"):
        meant(copies, OffsetSelection(end=after), second)
    copies.latest = 9
    with pytest.raises(NotArchived, match="may be missing; ingest has reached the offset 7, its frontier, of 9"):
        meant(copies, OffsetSelection(end=after), now)
    assert meant(copies, OffsetSelection(end=second), now) == {0: (0, 4)}, "a later record is in"


def test_what_is_left_of_a_range() -> None:
    assert without((0, 10), []) == [(0, 10)]
    assert without((0, 10), [(4, 6), (2, 5), (9, 20), (-3, 1)]) == [(1, 2), (6, 9)]
    assert without((0, 10), [(0, 10)]) == []
    assert without((3, 3), []) == []
    assert subtract({0: [(0, 4), (6, 9)], 1: [(0, 2)]}, {0: [(2, 7)], 1: [(0, 5)]}) == {0: [(0, 2), (7, 9)]}


def test_what_ranges_share_and_how_they_are_read() -> None:
    shared = within({0: [(0, 9)], 1: [(0, 9)], 2: [(0, 3), (5, 9)]}, {0: [(4, 20)], 1: [(9, 12)], 2: [(1, 6), (8, 9)]})
    assert shared == {0: [(4, 9)], 2: [(1, 3), (5, 6), (8, 9)]}
    assert size(shared) == 9
    assert list(batches_of_size(shared)) == [{0: (4, 9), 2: (1, 3)}, {2: (5, 6)}, {2: (8, 9)}]
    assert list(batches_of_size({})) == []


NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (OffsetSelection(start={0: 0, 7: 1}), r"start names the partitions \[7\]; plant.readings has \[0, 1\]"),
        (OffsetSelection(end={-1: 0}), r"end names the partitions \[-1\]"),
        (OffsetSelection(partitions=[0, 2]), r"partitions names the partitions \[2\]"),
        (OffsetSelection(start={0: 5}, end={0: 4}), "is before the start"),
        (OffsetSelection(start=NOON, end=NOON - timedelta(seconds=1)), "is before the start"),
    ],
)
def test_a_selection_that_a_topic_cannot_have_is_refused(span: OffsetSelection, told: str) -> None:
    with pytest.raises(BadArgument, match=told):
        span.require_valid(a_topic(partitions=2), range(2))


def test_a_compacted_topic_is_not_replayed() -> None:
    compacted = a_topic(schema={**READINGS.schema, "sensor": key()}, dedup_keys=(), tiered=False, compacted=True)
    with pytest.raises(BadArgument, match="is compacted"):
        decode(cast(Any, None), compacted, OffsetSelection())


SPANS = {
    "all": (OffsetSelection(), "0:0 0:1 0:2 1:0 1:1"),
    "from an offset, other partitions left out": (OffsetSelection(start={0: 1}), "0:1 0:2"),
    "to an offset, other partitions whole": (OffsetSelection(end={0: 1}), "0:0 1:0 1:1"),
    "no partition": (OffsetSelection(start={}), ""),
    "to no offset": (OffsetSelection(end={}), "0:0 0:1 0:2 1:0 1:1"),
    "one partition": (OffsetSelection(partitions=[1]), "1:0 1:1"),
    "of none": (OffsetSelection(partitions=[]), ""),
    "by time": (OffsetSelection(start=NOON, end=NOON + timedelta(hours=1)), "0:1 1:1"),
    "an offset and a time": (OffsetSelection(start={0: 5, 1: 0}, end=NOON), "1:0"),
    "before an offset": (OffsetSelection.before({0: 2}), "0:0 0:1"),
    "before a time": (OffsetSelection.before(NOON), "0:0 1:0"),
}


@pytest.mark.parametrize(("span", "selected"), SPANS.values(), ids=SPANS)
def test_a_selection_is_one_of_rows(span: OffsetSelection, selected: str) -> None:
    """Offset 0 was appended an hour before noon, 1 at noon, 2 an hour after, by a clock two hours east of it."""
    rows = duckdb_utc().sql(
        "SELECT _partition, _offset, '2013-01-01T13:00:00+02'::TIMESTAMPTZ + to_hours(_offset) AS _appended_at "
        "FROM (VALUES (0, 0), (0, 1), (0, 2), (1, 0), (1, 1)) t (_partition, _offset)"
    )
    found = rows.filter(span.sql(DUCKDB)).order("_partition, _offset").fetchall()
    assert " ".join(f"{partition}:{offset}" for partition, offset, _ in found) == selected
