"""A day of a shop is the same in every run, and has a case of everything that the shop's tables look for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import groupby

import pytest

from twofold.demo.traffic.expected.expected_tables import expected
from twofold.demo.traffic.shop_source import CartEvent, Login, SavedSearch, records

WEEK = (date(2026, 3, 2), date(2026, 3, 9))


def test_a_day_is_the_same_in_any_range_and_another_day_is_not() -> None:
    week = dict(records(*WEEK))
    tuesday = date(2026, 3, 3)
    assert dict(records(tuesday, tuesday + timedelta(days=1))) == {tuesday: week[tuesday]}
    assert len(week) == 7
    assert [record.key for record in week[tuesday]] != [record.key for record in week[date(2026, 3, 4)]]


def test_a_visit_begins_on_its_day_with_a_login_and_goes_on_from_there() -> None:
    for day, found in records(*WEEK):
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for record in found:
            if isinstance(record, Login):
                began = record.at
                assert midnight <= began < midnight + timedelta(days=1)
            assert record.at >= began


def test_the_events_of_a_cart_are_numbered_from_one_without_a_gap() -> None:
    events = [record for _, found in records(*WEEK) for record in found if isinstance(record, CartEvent)]
    for _, of_cart in groupby(events, lambda event: event.cart_id):
        versions = [event.version for event in of_cart]
        assert versions == list(range(1, len(versions) + 1))


def test_the_events_of_a_week_hold_no_fault_of_a_cart() -> None:
    found = expected("shop.carts", *WEEK)["fault"]
    assert found.null_count == len(found) > 1_000


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("settlements", "outcome", {"paid", "not paid", "no order"}),
        ("carts", "state", {"open", "ordered"}),
        ("shipments", "state", {"packed", "sent", "delivered"}),
    ],
)
def test_each_case_of_a_table_happens_in_a_week(table: str, column: str, values: set[str]) -> None:
    assert set(expected(f"shop.{table}", *WEEK)[column].to_pylist()) == values


@pytest.mark.parametrize("table", ["guessed_cards", "foreign_orders", "abandoned_carts"])
def test_each_pattern_happens_some_times_in_a_week(table: str) -> None:
    assert 20 < expected(f"shop.{table}", *WEEK).num_rows < 1_500


def test_searches_lead_to_clicks_to_none_and_to_clicks_that_come_too_late() -> None:
    found = expected("shop.search_results", *WEEK)["click_id"]
    clicks = sum(len([r for r in day if r.topic == "shop.clicks"]) for _, day in records(*WEEK))
    assert found.null_count > 500
    assert 500 < len(found) - found.null_count < clicks


def test_some_orders_are_made_twice_by_a_second_click() -> None:
    made = sum(len([r for r in day if r.topic == "shop.orders"]) for _, day in records(*WEEK))
    assert expected("shop.meant_orders", *WEEK).num_rows < made


def test_some_searches_are_saved_and_some_changed_and_posts_meet_them() -> None:
    saved = [record.key for _, day in records(*WEEK) for record in day if isinstance(record, SavedSearch)]
    assert 40 < len(set(saved)) < len(saved) < 300
    assert len(set(expected("shop.matching_searches", *WEEK)["search_id"].to_pylist())) > len(set(saved)) / 2
