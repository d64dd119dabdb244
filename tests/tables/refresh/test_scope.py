"""Which output rows a changed input row can have changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables.declared import a_table, a_topic
from twofold.infra.instants import EPOCH, Interval, epoch_ms, from_epoch_ms
from twofold.tables.refresh.scope import Scope, alike, coalesce, hull, merged, scope_of_row, scopes_of, whole

HOUR = 3_600_000
INTERVALS = st.builds(lambda start, length: Interval(start, start + length), st.integers(-50, 50), st.integers(1, 20))


def rows(*readings: tuple[str | None, datetime | None]) -> pa.Table:
    return pa.table(
        {
            "sensor": pa.array([sensor for sensor, _ in readings], pa.string()),
            "read_at": pa.array([at for _, at in readings], pa.timestamp("us", tz="UTC")),
        }
    )


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(1970, 1, 1, hour, minute, tzinfo=UTC)


def test_a_row_touches_its_value_within_lookback_on_both_sides() -> None:
    assert scopes_of(a_table(), a_topic(), rows(("a", at(3)))) == [Scope(("a",), Interval(2 * HOUR, 4 * HOUR + 1))]


def test_near_rows_of_one_value_become_one_scope_and_far_ones_stay_apart() -> None:
    touched = rows(("b", at(3)), ("a", at(3)), ("a", at(4)), ("a", at(9)))
    assert scopes_of(a_table(), a_topic(), touched) == [
        Scope(("a",), Interval(2 * HOUR, 5 * HOUR + 1)),
        Scope(("a",), Interval(8 * HOUR, 10 * HOUR + 1)),
        Scope(("b",), Interval(2 * HOUR, 4 * HOUR + 1)),
    ]


def test_a_nested_value_touches_all_values() -> None:
    table, topic = a_table(recompute_by=["tags", "sensor"]), a_topic()
    touched = rows(("a", at(3))).append_column("tags", pa.array([["x"]]))
    assert scopes_of(table, topic, touched) == [Scope((..., "a"), Interval(2 * HOUR, 4 * HOUR + 1))]
    row = {"tags": ["x"], "sensor": "a", "hour": at(3)}
    assert merged([scope_of_row(table, row)]) == [Scope((..., "a"), Interval(3 * HOUR, 3 * HOUR + 1))]


def test_a_date_that_python_cannot_hold_touches_all_values() -> None:
    table = a_table(recompute_by=["day", "sensor"])
    for days, value in ((2_932_896, date(9999, 12, 31)), (2_932_897, ...)):
        touched = rows(("a", at(3))).append_column("day", pa.array([days], pa.int32()).cast(pa.date32()))
        assert scopes_of(table, a_topic(), touched) == [Scope((value, "a"), Interval(2 * HOUR, 4 * HOUR + 1))]


def test_an_input_may_call_the_column_of_the_scope_by_another_name() -> None:
    table = a_table(recompute_by=["place"], scope_columns={"readings": {"place": "sensor"}})
    assert scopes_of(table, a_topic(), rows(("a", at(3)))) == [Scope(("a",), Interval(2 * HOUR, 4 * HOUR + 1))]


def test_a_null_value_is_a_value_of_its_own() -> None:
    assert scopes_of(a_table(), a_topic(), rows((None, at(3)))) == [Scope((None,), Interval(2 * HOUR, 4 * HOUR + 1))]


def test_a_row_without_a_time_touches_every_date_of_its_value() -> None:
    assert scopes_of(a_table(), a_topic(), rows(("a", None), ("a", at(3)))) == [Scope(("a",), None)]


def test_many_scopes_are_within_one_of_any_value() -> None:
    scopes = [Scope(("b",), Interval(7, 9)), Scope(("a",), Interval(2, 4)), Scope(("a",), Interval(5, 6))]
    assert hull(scopes) == Scope((...,), Interval(2, 9))
    assert hull([*scopes, Scope(("c",), None)]) is None


def test_without_lookback_every_date_is_touched() -> None:
    table = a_table(closes_at=None, depends_within=None)
    assert scopes_of(table, a_topic(), rows(("a", at(3)), ("a", at(9)))) == [Scope(("a",), None)]


def test_a_column_that_the_input_lacks_may_have_any_value() -> None:
    table = a_table(recompute_by=["plant", "sensor"])
    assert scopes_of(table, a_topic(), rows(("a", at(3)))) == [Scope((..., "a"), Interval(2 * HOUR, 4 * HOUR + 1))]


def test_an_input_whose_rows_have_no_time_touches_every_date() -> None:
    newest = a_table(closes_at=None, depends_within=None, event_time=None)
    assert scopes_of(a_table(), newest, rows(("a", at(3))).select(["sensor"])) == [Scope(("a",), None)]


def test_nothing_touched_is_no_scope() -> None:
    assert scopes_of(a_table(), a_topic(), rows()) == []


def test_a_scope_of_every_date_swallows_the_others_of_its_value() -> None:
    scopes = [Scope(("a",), Interval(0, 5)), Scope(("b",), Interval(0, 5)), Scope(("a",), None)]
    assert merged(scopes) == [Scope(("a",), None), Scope(("b",), Interval(0, 5))]


def test_merging_again_changes_nothing() -> None:
    once = merged([Scope(("a", 1), Interval(0, 5)), Scope(("a", 1), Interval(5, 9)), Scope(("a", 2), None)])
    assert once == merged(once)
    assert once[0] == Scope(("a", 1), Interval(0, 9))


def test_touching_intervals_join_and_a_gap_of_one_keeps_them_apart() -> None:
    assert coalesce([Interval(5, 8), Interval(0, 5), Interval(9, 12), Interval(1, 2)]) == [
        Interval(0, 8),
        Interval(9, 12),
    ]


@given(st.lists(INTERVALS))
def test_joined_intervals_cover_the_same_points_apart_and_in_order(intervals: list[Interval]) -> None:
    joined = coalesce(intervals)
    assert {p for i in joined for p in range(i.start, i.end)} == {p for i in intervals for p in range(i.start, i.end)}
    assert all(a.end < b.start for a, b in pairwise(joined))


def test_an_interval_is_widened_on_both_sides() -> None:
    assert Interval(10, 20).widened(5) == Interval(5, 25)


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        (datetime(1970, 1, 1, 0, 0, 1, 1_999, tzinfo=UTC), 1_001),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(1969, 12, 31, 23, 59, 59, 998_500, tzinfo=UTC), -2),
        (date(1970, 1, 2), 24 * HOUR),
        (None, None),
    ],
)
def test_times_are_milliseconds_rounded_down(moment: datetime | date | None, milliseconds: int | None) -> None:
    assert epoch_ms(moment) == milliseconds


def test_a_time_beyond_the_calendar_is_its_last_millisecond() -> None:
    assert from_epoch_ms(10**18) == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert from_epoch_ms(-(10**18)) == datetime(1, 1, 1, tzinfo=UTC)


@given(st.integers(-60_000_000_000_000, 250_000_000_000_000))
def test_milliseconds_come_back(milliseconds: int) -> None:
    assert epoch_ms(from_epoch_ms(milliseconds)) == milliseconds
    assert from_epoch_ms(milliseconds) - EPOCH == timedelta(milliseconds=milliseconds)


def test_a_scope_is_widened_to_the_whole_of_every_row_that_it_meets() -> None:
    spans = [(("a",), 0, 5 * HOUR), (("a",), 9 * HOUR, 10 * HOUR), (("b",), 0, 20 * HOUR)]
    assert whole([Scope(("a",), Interval(4 * HOUR, 6 * HOUR))], spans) == [Scope(("a",), Interval(0, 6 * HOUR))]


def test_a_scope_between_two_rows_joins_them() -> None:
    spans = [(("a",), 0, 5 * HOUR), (("a",), 7 * HOUR, 10 * HOUR)]
    joined = [Scope(("a",), Interval(0, 10 * HOUR + 1))]
    assert whole([Scope(("a",), Interval(5 * HOUR, 7 * HOUR))], spans) == joined


def test_a_scope_of_any_value_meets_the_rows_of_all() -> None:
    spans = [(("a",), 0, 5 * HOUR), (("b",), 7 * HOUR, 10 * HOUR)]
    assert whole([Scope((...,), Interval(4 * HOUR, 8 * HOUR))], spans) == [Scope((...,), Interval(0, 10 * HOUR + 1))]


def test_a_scope_of_every_date_does_not_widen_what_is_read_for_others() -> None:
    hour = Interval(0, HOUR)
    post, follow, other = Scope((..., "ann"), hour), Scope(("bob", "ann"), None), Scope(("eve", "ann"), None)
    popular, dated = Scope((..., "ann"), None), Scope(("bob", "ann"), hour)
    assert alike([follow, post, popular, other, dated]) == [[post, dated], [popular], [follow, other]]
    assert alike([]) == []


def test_every_nan_is_one_value() -> None:
    first, second = Scope((float("nan"), "a"), None), Scope((float("nan"), "a"), None)
    assert first.covers(second)
    assert merged([first, second]) == [first]
    long = whole([Scope((float("nan"),), Interval(0, 1))], [((float("nan"),), 0, 9)])
    assert [scope.interval for scope in long] == [Interval(0, 10)]
