"""Tables of flights: rows in, rows out, and that the stream and the batch say the same."""

DEPARTURES = [
    {"kind": "departed", "origin": "JFK", "occurred_at": "2013-01-01T10:05", "delay_min": 30},
    {"kind": "departed", "origin": "JFK", "occurred_at": "2013-01-01T10:50", "delay_min": -4},
    {"kind": "cancelled", "origin": "JFK", "occurred_at": "2013-01-01T10:55"},
    {"kind": "departed", "origin": "LGA", "occurred_at": "2013-01-01T11:00", "delay_min": 0},
]


def test_delays_are_of_the_flights_that_left(assert_rows):
    assert_rows(
        "flights.delays_by_hour",
        departures=DEPARTURES,
        gives=[
            {"origin": "JFK", "hour": "2013-01-01T10:00", "flights": 2, "mean_delay_min": 13.0, "late_share": 0.5},
            {"origin": "LGA", "hour": "2013-01-01T11:00", "flights": 1, "mean_delay_min": 0.0, "late_share": 0.0},
        ],
        gives_sql="""
            SELECT origin, date_trunc('hour', occurred_at) AS hour, count(*) AS flights,
                avg(delay_min) AS mean_delay_min, avg((delay_min > 15)::DOUBLE) AS late_share
            FROM departures WHERE kind = 'departed' GROUP BY ALL
        """,
    )


def test_days_of_a_carrier_begin_at_midnight_in_new_york(assert_rows):
    assert_rows(
        "flights.carrier_days",
        flights=[
            {"carrier": "UA", "departed_at": "2013-01-02T04:59", "departure_delay_min": 10, "outcome": "landed"},
            {"carrier": "UA", "departed_at": "2013-01-02T05:00", "departure_delay_min": 20, "outcome": None},
        ],
        gives=[
            {"carrier": "UA", "day": "2013-01-01", "flights": 1, "landed": 1, "mean_departure_delay_min": 10.0},
            {"carrier": "UA", "day": "2013-01-02", "flights": 1, "landed": 0, "mean_departure_delay_min": 20.0},
        ],
    )


def test_stream_and_batch_agree_on_delays(assert_parity):
    """Sends made departures: some are late, some are repeated, some cannot be read."""
    assert_parity("flights.delays_by_hour")
