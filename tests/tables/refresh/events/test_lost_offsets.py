"""What is lost is named once, until a person has said that it is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadArgument
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.lost_offsets import Gap

TOPIC = "plant.readings"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
LOST = Gap(topic=TOPIC, partition=0, start=40, end=60, recorded_at=NOON, why="gone", log="a")


@pytest.fixture
def ledger(lake: Lake) -> Lake:
    lost_offsets.ensure(lake)
    return lake


def ranges(lake: Lake, topic: str | None = None) -> list[tuple[str, int, int, int]]:
    return [(gap.log, gap.partition, gap.start, gap.end) for gap in lost_offsets.gaps(lake, topic)]


def test_a_lake_without_the_ledger_has_no_gaps(lake: Lake) -> None:
    assert lost_offsets.gaps(lake) == []


def test_a_gap_is_kept_as_it_was_reported(ledger: Lake) -> None:
    assert lost_offsets.record(ledger, [LOST]) == [LOST]
    assert lost_offsets.gaps(ledger) == [LOST]
    assert str(LOST) == "plant.readings, partition 0: offsets [40, 60) are lost: gone"


def test_a_gap_that_is_reported_again_is_not_written_again(ledger: Lake) -> None:
    lost_offsets.record(ledger, [LOST, replace(LOST, partition=1)])
    version = ledger.version(lost_offsets.GAPS)
    assert lost_offsets.record(ledger, [LOST, replace(LOST, partition=1)]) == []
    assert lost_offsets.record(ledger, [replace(LOST, start=45, end=50)]) == []
    assert ledger.version(lost_offsets.GAPS) == version


def test_of_a_gap_that_grew_only_the_rest_is_written(ledger: Lake) -> None:
    lost_offsets.record(ledger, [LOST])
    lost_offsets.record(ledger, [replace(LOST, start=30, end=80)])
    assert ranges(ledger) == [("a", 0, 30, 40), ("a", 0, 40, 60), ("a", 0, 60, 80)]
    assert lost_offsets.record(ledger, [replace(LOST, start=20, end=90), replace(LOST, partition=1)]) == [
        replace(LOST, start=20, end=30),
        replace(LOST, start=80, end=90),
        replace(LOST, partition=1),
    ]


def test_the_same_offsets_of_another_log_are_another_gap(ledger: Lake) -> None:
    lost_offsets.record(ledger, [LOST])
    lost_offsets.record(ledger, [replace(LOST, log="b")])
    lost_offsets.record(ledger, [replace(LOST, topic="plant.doors")])
    assert ranges(ledger, TOPIC) == [("a", 0, 40, 60), ("b", 0, 40, 60)]
    assert len(lost_offsets.gaps(ledger)) == 3


def test_who_acknowledges_a_gap_says_why_it_may_remain(ledger: Lake) -> None:
    lost_offsets.record(ledger, [LOST, replace(LOST, partition=1)])
    lost_offsets.record(ledger, [replace(LOST, topic="plant.doors")])
    known = lost_offsets.acknowledge(ledger, TOPIC, "the broker's disk failed; the plant keeps a copy")
    assert [(gap.topic, gap.partition, gap.is_open) for gap in known] == [(TOPIC, 0, False), (TOPIC, 1, False)]
    assert lost_offsets.gaps(ledger, TOPIC) == known
    assert [gap.is_open for gap in lost_offsets.gaps(ledger, "plant.doors")] == [True]
    assert lost_offsets.record(ledger, [LOST]) == []


def test_an_acknowledgement_happens_once_and_needs_a_reason(ledger: Lake) -> None:
    lost_offsets.record(ledger, [LOST])
    with pytest.raises(BadArgument, match="with a reason"):
        lost_offsets.acknowledge(ledger, TOPIC, " ")
    assert lost_offsets.gaps(ledger)[0].is_open
    lost_offsets.acknowledge(ledger, TOPIC, "known")
    version = ledger.version(lost_offsets.GAPS)
    assert lost_offsets.acknowledge(ledger, TOPIC, "again") == []
    assert ledger.version(lost_offsets.GAPS) == version


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ([], [{0: (10, 50), 1: (0, 9)}]),
        ([(0, 0, 10), (0, 50, 60), (2, 0, 99)], [{0: (10, 50), 1: (0, 9)}]),
        ([(0, 20, 30)], [{0: (10, 20), 1: (0, 9)}, {0: (30, 50)}]),
        ([(0, 40, 60), (0, 5, 20), (1, 3, 4)], [{0: (20, 40), 1: (0, 3)}, {1: (4, 9)}]),
        ([(0, 20, 30), (0, 30, 40)], [{0: (10, 20), 1: (0, 9)}, {0: (40, 50)}]),
        ([(0, 0, 60)], [{1: (0, 9)}]),
        ([(0, 0, 60), (1, 0, 9)], []),
    ],
)
def test_ranges_leave_out_what_is_lost(lost: list[tuple[int, int, int]], left: list[dict[int, Any]]) -> None:
    known = [replace(LOST, partition=p, start=start, end=end) for p, start, end in lost]
    assert lost_offsets.between_gaps({0: (10, 50), 1: (0, 9)}, known) == left
