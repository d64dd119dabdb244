"""What people type after a command."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from twofold.cli.parsing import parse_offsets, parse_partitions, parse_position, parse_speed, parse_time
from twofold.infra.errors import BadArgument


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2013-01-05", datetime(2013, 1, 5, tzinfo=UTC)),
        ("2013-01-05T06:30", datetime(2013, 1, 5, 6, 30, tzinfo=UTC)),
        ("2013-01-05T06:30:00Z", datetime(2013, 1, 5, 6, 30, tzinfo=UTC)),
        ("2013-01-05T06:30:00-05:00", datetime(2013, 1, 5, 11, 30, tzinfo=UTC)),
    ],
)
def test_a_time_without_an_offset_is_utc(text: str, instant: datetime) -> None:
    parsed = parse_time(text, "--start")
    assert parsed == instant
    assert parsed.utcoffset() == instant.utcoffset()


def test_one_offset_applies_to_every_partition() -> None:
    assert parse_offsets("1200", "--from", 3) == {0: 1200, 1: 1200, 2: 1200}


def test_offsets_by_partition_leave_the_others_out() -> None:
    assert parse_offsets("2:80,0:1200", "--from", 3) == {2: 80, 0: 1200}


def test_no_offsets_stay_none() -> None:
    assert parse_offsets(None, "--from", 3) is None


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0:1;1:2", "0:", "0:1,", "3:1", "²"])
def test_other_texts_are_no_offsets(text: str) -> None:
    with pytest.raises(BadArgument):
        parse_offsets(text, "--from", 3)


def test_a_place_is_offsets_a_time_or_the_earliest() -> None:
    assert parse_position("1200", "--from", 2) == {0: 1200, 1: 1200}
    assert parse_position("1:7", "--from", 2) == {1: 7}
    assert parse_position("2013-01-05T06:30", "--from", 2) == datetime(2013, 1, 5, 6, 30, tzinfo=UTC)
    assert parse_position("earliest", "--from", 2) is None
    for text in ("yesterday", "2013-13-01", ""):
        with pytest.raises(BadArgument, match="expected"):
            parse_position(text, "--from", 2)


def test_partitions_are_numbers_that_the_topic_has() -> None:
    assert parse_partitions(None, "--partitions", 3) is None
    assert parse_partitions("2,0,2", "--partitions", 3) == [0, 2]
    for text in ("", "0,", "a", "-1", "0;1", "3", "²"):
        with pytest.raises(BadArgument, match="--partitions="):
            parse_partitions(text, "--partitions", 3)


def test_speed_is_a_factor_or_as_fast_as_possible() -> None:
    assert parse_speed("max") is None
    assert parse_speed("2.5") == 2.5
    for text in ("0", "inf", "fast"):
        with pytest.raises(BadArgument):
            parse_speed(text)
