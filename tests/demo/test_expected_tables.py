from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tests import ROOT
from twofold.demo.traffic.expected.expected_tables import KEYS, expected, is_final
from twofold.demo.traffic.flight_source import Arrival, Departure, Observation, records
from twofold.demo.traffic.table_diff import compare
from twofold.infra.errors import BadArgument, SchemaMismatch

JANUARY = (date(2013, 1, 1), date(2013, 2, 1))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(*JANUARY, id="January"),
        pytest.param(date(2013, 3, 8), date(2013, 3, 13), id="summer time begins"),
        pytest.param(date(2013, 11, 1), date(2013, 11, 6), id="summer time ends"),
    ],
)
def test_the_traffic_and_the_truth_date_every_flight_alike(start: date, end: date) -> None:
    found = [record for _, day in records(start, end) for record in day]
    left = {r.flight_id: r.at for r in found if isinstance(r, Departure) and r.kind == "departed"}
    landed = {r.flight_id: r.at for r in found if isinstance(r, Arrival)}
    truth = expected("flights.flights", start, end).to_pylist()
    assert {row["flight_id"]: row["departed_at"] for row in truth} == left
    assert {row["flight_id"]: row["arrived_at"] for row in truth if row["arrived_at"]} == landed


def test_the_traffic_and_the_truth_agree_on_the_latest_weather() -> None:
    for day in (date(2013, 11, 3), date(2013, 1, 31), date(2013, 7, 4)):
        next_day = day + timedelta(days=1)
        [(_, found)] = records(day, next_day)
        latest: dict[str, Observation] = {}
        for record in (r for r in found if isinstance(r, Observation)):
            if record.airport not in latest or latest[record.airport].at < record.at:
                latest[record.airport] = record
        truth = expected("flights.airport_weather", day, next_day).to_pylist()
        assert len(truth) == 3
        for row in truth:
            record = latest[row["airport"]]
            assert (row["observed_at"], row["temperature_f"]) == (record.at, record.temperature_f)
            assert (row["wind_direction_deg"], row["visibility_mi"]) == (
                record.wind_direction_deg,
                record.visibility_mi,
            )


def test_january_has_26483_departures_and_26468_of_them_landed() -> None:
    truth = expected("flights.flights", *JANUARY)
    outcomes = truth["outcome"].value_counts().to_pylist()
    assert {o["values"]: o["counts"] for o in outcomes} == {"landed": 26_468, "never landed": 15}
    assert len(set(truth["flight_id"].to_pylist())) == 26_483


def test_an_hour_of_departures_is_summed_up_as_by_hand() -> None:
    """EWR between 10:00 and 11:00 UTC of 1 January: five flights left, 2, -4, -5, -2 and -1 minutes late."""
    first = expected("flights.delays_by_hour", *JANUARY).slice(0, 1).to_pylist()[0]
    hour = datetime(2013, 1, 1, 10, tzinfo=UTC)
    delays = [2, -4, -5, -2, -1]
    assert first == {
        "origin": "EWR",
        "hour": hour,
        "closes_at": hour + timedelta(hours=1),
        "flights": 5,
        "mean_delay_min": statistics.mean(delays),
        "p90_delay_min": pytest.approx(-1 + 0.6 * 3),  # rank 0.9 * 4 = 3.6 of -5, -4, -2, -1, 2
        "late_share": 0.0,
    }


def test_a_carriers_day_is_that_of_new_york_and_of_the_actual_departure() -> None:
    flights = expected("flights.flights", *JANUARY).to_pylist()
    days: dict[tuple[str, date], list[dict[str, Any]]] = defaultdict(list)
    for row in flights:
        days[row["carrier"], row["departed_at"].astimezone(ZoneInfo("America/New_York")).date()].append(row)
    truth = {(row["carrier"], row["day"]): row for row in expected("flights.carrier_days", *JANUARY).to_pylist()}
    assert set(truth) == set(days)
    assert ("B6", date(2013, 2, 1)) in truth  # scheduled on 31 January, left after midnight
    for key, row in truth.items():
        assert (row["flights"], row["landed"]) == (
            len(days[key]),
            sum(flight["outcome"] == "landed" for flight in days[key]),
        )
        delays = [flight["arrival_delay_min"] for flight in days[key] if flight["arrival_delay_min"] is not None]
        assert math.isclose(row["mean_arrival_delay_min"], statistics.mean(delays), rel_tol=1e-12, abs_tol=1e-12)


SHOP = (datetime(2026, 3, 4, 5, tzinfo=UTC), date(2026, 3, 2), date(2026, 3, 6))
FLIGHTS = (datetime(2013, 1, 20, 5, tzinfo=UTC), date(2013, 1, 16), date(2013, 1, 22))


@pytest.mark.parametrize("table", KEYS)
def test_rows_that_may_still_change_are_left_out(table: str) -> None:
    before, *days = SHOP if table.startswith("shop.") else FLIGHTS
    every, final = expected(table, *days), expected(table, *days, is_final(table, before))
    found = compare(every, final, KEYS[table])
    assert (found.extra, found.changed) == (0, 0)
    if is_final(table, before) == "true":
        assert found.missing == 0
    else:
        assert 0 < found.missing < every.num_rows
    if table == "flights.carrier_days":
        assert max(final["day"].to_pylist()) == date(2013, 1, 18)
    if table == "flights.delays_by_hour":
        assert max(final["closes_at"].to_pylist()) < before
    if table == "flights.flights":
        assert max(final["departed_at"].to_pylist()) < before - timedelta(hours=24)


def test_a_table_without_a_truth_is_refused() -> None:
    with pytest.raises(BadArgument, match="boats"):
        expected("flights.boats", *JANUARY)
    with pytest.raises(BadArgument, match="boats"):
        is_final("flights.boats", datetime(2013, 1, 1, tzinfo=UTC))


def test_the_truth_shares_nothing_with_traffic_but_what_happened_in_a_shop() -> None:
    files = (ROOT / "demo" / "traffic" / "expected").glob("*.py")
    imported = {
        line.strip() for file in files for line in file.read_text().splitlines() if re.match(r"\s*(from|import) ", line)
    }
    ours = {line for line in imported if re.match(r"from twofold\.(?!infra)", line)}
    assert ours == {
        "from twofold.demo.traffic.expected import expected_flights, expected_shop",
        "from twofold.demo.traffic import shop_database, shop_source",
    }


def table(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


def test_equal_tables_are_equal_in_any_order_with_nulls_and_rounding() -> None:
    one = table(k=["a", "b", "c"], x=[0.1 + 0.2, None, float("nan")], n=[1, 2, None])
    other = table(k=["c", "b", "a"], x=[float("nan"), None, 0.3], n=[None, 2, 1])
    found = compare(one, other, ["k"])
    assert found.equal
    assert (found.rows, found.examples.num_rows) == (3, 0)


def test_every_difference_is_counted_and_shown() -> None:
    one = table(k=["a", "b", "c", "d"], x=[1.0, 2.0, 3.0, 0.0])
    other = table(k=["a", "b", "d", "e"], x=[1.0, 2.00001, None, 5.0])
    found = compare(one, other, ["k"])
    assert (found.missing, found.extra, found.changed, found.equal) == (1, 1, 2, False)
    assert found.examples.to_pylist() == [
        {"difference": "changed", "k": "b", "x": {"expected": 2.0, "live": 2.00001}},
        {"difference": "missing", "k": "c", "x": {"expected": 3.0, "live": None}},
        {"difference": "changed", "k": "d", "x": {"expected": 0.0, "live": None}},
        {"difference": "extra", "k": "e", "x": {"expected": None, "live": 5.0}},
    ]


def test_a_second_row_of_a_key_is_extra_even_if_it_is_the_same() -> None:
    found = compare(table(k=["a"], x=[1]), table(k=["a", "a"], x=[1, 1]), ["k"])
    assert (found.missing, found.extra, found.changed) == (0, 1, 0)


def test_floats_differ_beyond_a_billionth_and_whole_numbers_at_once() -> None:
    assert compare(table(k=[1], x=[1e6]), table(k=[1], x=[1e6 + 0.0005]), ["k"]).equal
    assert not compare(table(k=[1], x=[1e6]), table(k=[1], x=[1e6 + 0.005]), ["k"]).equal
    assert not compare(table(k=[1], x=[10**12]), table(k=[1], x=[10**12 + 1]), ["k"]).equal
    assert not compare(table(k=[1], x=[float("inf")]), table(k=[1], x=[float("-inf")]), ["k"]).equal


def test_an_approximate_column_may_differ_within_its_error() -> None:
    one, other = table(k=[1, 2], n=[1_000, 0]), table(k=[1, 2], n=[1_020, 0], sketch=[b"a", b"b"])
    infinite = {"sketch": float("inf")}
    assert compare(one, other, ["k"], {"n": 0.02} | infinite).equal
    assert compare(one, other, ["k"], {"n": 0.019} | infinite).changed == 1
    assert compare(one, other, ["k"], infinite).changed == 1
    assert compare(one, table(k=[1, 2], n=[1_000, None]), ["k"], {"n": 0.02}).changed == 1
    assert compare(one, table(k=[1, 2], n=[1_000, 1]), ["k"], {"n": 0.02}).changed == 1


def test_a_value_that_is_no_number_has_no_distance() -> None:
    one, other = table(k=[1, 2], most=[["a", "b"], []]), table(k=[1, 2], most=[["b", "a"], []])
    assert compare(one, one, ["k"], {"most": 0}).equal
    assert compare(one, other, ["k"], {"most": 0}).changed == 1


def test_columns_of_the_platforms_own_are_left_out() -> None:
    assert compare(table(k=[1], x=[1]), table(k=[1], _offset=[7], x=[1]), ["k"]).equal


def test_tables_of_other_columns_or_types_cannot_be_compared() -> None:
    with pytest.raises(SchemaMismatch, match="x is missing, expected BIGINT; y is VARCHAR, expected no such column"):
        compare(table(k=[1], x=[1]), table(k=[1], y=["1"]), ["k"])
    with pytest.raises(SchemaMismatch, match="x is DOUBLE, expected BIGINT"):
        compare(table(k=[1], x=[1]), table(k=[1], x=[1.0]), ["k"])
