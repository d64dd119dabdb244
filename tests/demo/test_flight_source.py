"""Each case was worked out by hand from its line in the file, with the clocks of both ends in mind."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from twofold.demo.traffic.flight_source import Arrival, Departure, FlightRow, Observation, arrival, departure, records


def row(line: str) -> FlightRow:
    return FlightRow._make(line.split(","))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_departure_carries_what_the_line_says() -> None:
    line = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    assert departure(row(line)) == Departure(
        flight_id="UA1545/2013-01-01T10:15Z",
        kind="departed",
        carrier="UA",
        flight=1545,
        tail_number="N14228",
        origin="EWR",
        destination="IAH",
        scheduled_at=utc("2013-01-01T10:15"),
        at=utc("2013-01-01T10:17"),
        delay_min=2,
    )


@pytest.mark.parametrize(
    ("line", "left", "landed"),
    [
        pytest.param(
            "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,",
            "2013-01-01T10:17",
            "2013-01-01T14:30",
            id="Houston, an hour behind New York",
        ),
        pytest.param(
            "2013,1,1,857,900,-3,1516,1530,-14,HA,51,N380HA,JFK,HNL,659,4983,9,0,",
            "2013-01-01T13:57",
            "2013-01-02T01:16",
            id="Honolulu, the next day in UTC",
        ),
        pytest.param(
            "2013,1,1,2128,2135,-7,26,50,-24,AA,185,N338AA,JFK,LAX,338,2475,21,35,",
            "2013-01-02T02:28",
            "2013-01-02T08:26",
            id="Los Angeles, after midnight there",
        ),
        pytest.param(
            "2013,1,1,2209,2155,14,2400,2337,23,B6,1109,N216JB,JFK,RDU,86,427,21,55,",
            "2013-01-02T03:09",
            "2013-01-02T05:00",
            id="at 2400, which is midnight",
        ),
        pytest.param(
            "2013,1,1,1929,1920,9,3,7,-4,UA,1071,N27205,EWR,BQN,192,1585,19,20,",
            "2013-01-02T00:29",
            "2013-01-02T04:03",
            id="Aguadilla, which the file of airports lacks, in winter an hour ahead",
        ),
        pytest.param(
            "2013,7,1,2,2359,3,344,344,0,B6,1503,N805JB,JFK,SJU,200,1598,23,59,",
            "2013-07-02T04:02",
            "2013-07-02T07:44",
            id="San Juan, in summer the same time as New York; scheduled before midnight, left after it",
        ),
        pytest.param(
            "2013,7,1,655,658,-3,855,915,-20,UA,1138,N38727,EWR,PHX,278,2133,6,58,",
            "2013-07-01T10:55",
            "2013-07-01T15:55",
            id="Phoenix, which has no summer time",
        ),
        pytest.param(
            "2013,3,10,6,2359,7,336,338,-2,B6,727,N547JB,JFK,BQN,186,1576,23,59,",
            "2013-03-11T04:06",
            "2013-03-11T07:36",
            id="the first evening of summer time",
        ),
        pytest.param(
            "2013,3,9,2306,2145,81,203,34,89,B6,35,N658JB,JFK,PBI,141,1028,21,45,",
            "2013-03-10T04:06",
            "2013-03-10T07:03",
            id="written down at a time that the clocks skipped",
        ),
        pytest.param(
            "2013,11,2,2217,1655,322,114,2015,299,VX,413,N838VA,JFK,LAX,339,2475,16,55,",
            "2013-11-03T02:17",
            "2013-11-03T08:14",
            id="at the first of the two times that the clocks showed",
        ),
    ],
)
def test_a_flight_lands_at_the_first_such_time_of_its_destination(line: str, left: str, landed: str) -> None:
    flight = row(line)
    leaving = departure(flight)
    landing = arrival(flight, leaving)
    assert landing is not None
    assert (leaving.at, landing.at) == (utc(left), utc(landed))
    assert landing.flight_id == leaving.flight_id


def test_a_cancelled_flight_is_dated_by_its_schedule_and_never_lands() -> None:
    flight = row("2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,")
    cancelled = departure(flight)
    assert (cancelled.kind, cancelled.at, cancelled.delay_min) == ("cancelled", utc("2013-01-01T21:30"), None)
    assert arrival(flight, cancelled) is None


def test_a_diverted_flight_departs_and_never_lands() -> None:
    flight = row("2013,1,1,2016,1930,46,NA,2220,NA,EV,4204,N14168,EWR,OKC,NA,1325,19,30,")
    diverted = departure(flight)
    assert (diverted.kind, diverted.at) == ("departed", utc("2013-01-02T01:16"))
    assert arrival(flight, diverted) is None


def test_a_landing_may_lack_its_delay_and_its_air_time() -> None:
    flight = row("2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,")
    assert arrival(flight, departure(flight)) == Arrival(
        flight_id="MQ4525/2013-01-01T20:30Z",
        carrier="MQ",
        destination="XNA",
        at=utc("2013-01-02T01:34"),
        delay_min=None,
        air_time_min=None,
    )


def test_the_hour_that_new_york_had_twice_gives_two_observations() -> None:
    [(_, found)] = records(date(2013, 11, 3), date(2013, 11, 4))
    newark = [r for r in found if isinstance(r, Observation) and r.airport == "EWR"]
    assert [(r.at, r.temperature_f) for r in newark[:3]] == [
        (utc("2013-11-03T05:00"), 51.98),
        (utc("2013-11-03T06:00"), 50.0),
        (utc("2013-11-03T07:00"), 51.08),
    ]


def test_what_was_not_observed_is_null() -> None:
    [(_, found)] = records(date(2013, 1, 1), date(2013, 1, 2))
    first = next(r for r in found if isinstance(r, Observation))
    assert (first.airport, first.at, first.wind_gust_mph) == ("EWR", utc("2013-01-01T06:00"), None)
    assert (first.pressure_mb, first.wind_direction_deg, first.precipitation_in) == (1012.0, 270, 0.0)


def test_january_has_the_records_that_the_files_have() -> None:
    """27,004 lines; 521 without a departure, 536 without an arrival; 2,226 observations: counted with grep and awk."""
    found = [record for _, day in records(date(2013, 1, 1), date(2013, 2, 1)) for record in day]
    departures = [r for r in found if isinstance(r, Departure)]
    assert len(departures) == 27_004
    assert sum(r.kind == "cancelled" for r in departures) == 521
    assert sum(isinstance(r, Arrival) for r in found) == 27_004 - 536
    assert sum(isinstance(r, Observation) for r in found) == 2_226
    assert len({r.flight_id for r in departures}) == 27_004


def test_every_flight_is_longer_than_its_time_in_the_air() -> None:
    for _, day in records(date(2013, 3, 1), date(2013, 3, 15)):
        left = {r.flight_id: r.at for r in day if isinstance(r, Departure)}
        for landing in (r for r in day if isinstance(r, Arrival)):
            elapsed = landing.at - left[landing.flight_id]
            assert timedelta(minutes=landing.air_time_min or 0) < elapsed < timedelta(hours=24)
