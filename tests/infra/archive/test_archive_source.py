"""What the options of the Spark source `archive` ask for; its rows are in test_broker.py."""

from __future__ import annotations

import pytest

from twofold.infra.archive.archive_source import ArchiveSource, asked_ranges
from twofold.infra.errors import BadArgument, NotArchived
from twofold_archive.read_plan import ArchivedBounds

BOUNDS = {0: ArchivedBounds(start=2, end=10), 1: ArchivedBounds(start=0, end=7)}


@pytest.mark.parametrize(
    ("starting", "ending", "ranges"),
    [
        ("earliest", "latest", {0: (2, 10), 1: (0, 7)}),
        ('{"1": 3}', "latest", {1: (3, 7)}),
        ("earliest", '{"0": 4}', {0: (2, 4)}),
        ('{"0": 3, "1": 1}', '{"1": 2, "0": 4}', {0: (3, 4), 1: (1, 2)}),
        ('{"5": 3}', '{"5": 4}', {5: (3, 4)}),
    ],
)
def test_offsets_are_named_as_for_the_source_kafka(starting: str, ending: str, ranges: dict[int, object]) -> None:
    assert asked_ranges("t", BOUNDS, starting, ending) == ranges


@pytest.mark.parametrize(
    ("starting", "ending", "says"),
    [
        ("oldest", "latest", "startingOffsets='oldest': expected `earliest` or JSON of partition -> offset"),
        ("earliest", "earliest", "endingOffsets='earliest': expected `latest` or JSON"),
        ('{"0": "five"}', "latest", "Expected `int`, got `str`"),
        ('{"0": 3}', '{"1": 4}', "startingOffsets names the partitions 0 of t, endingOffsets 1"),
        ('{"5": 3}', "latest", "Nothing is archived of partition 5 of t"),
    ],
)
def test_offsets_that_cannot_be_meant_are_refused(starting: str, ending: str, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        asked_ranges("t", BOUNDS, starting, ending)


def test_a_topic_without_an_archive_is_not_read_as_an_empty_one() -> None:
    with pytest.raises(NotArchived, match="Nothing of flihgts is archived"):
        asked_ranges("flihgts", {}, "earliest", "latest")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs the option topic"),
        ({"topic": "t", "subscribe": "t"}, "has no option subscribe"),
        ({"topic": "t", "columns": "offset,size"}, "no column size"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        ArchiveSource(options).schema()
