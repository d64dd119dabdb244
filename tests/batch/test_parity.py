"""The stream's tables, corrected, equal what an independent engine computes from the same log."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from infra.settings import Settings
from tests.worlds import World
from traffic.comparison import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

START = datetime(2013, 3, 9, 12, tzinfo=UTC)  # the night of a clock change follows
MINUTE = timedelta(minutes=1)
UNMEASURED = [
    "dew_point_f",
    "humidity_pct",
    "wind_direction_deg",
    "wind_speed_mph",
    "wind_gust_mph",
    "precipitation_in",
    "pressure_mb",
    "visibility_mi",
]


@dataclass(frozen=True)
class Flight:
    """A flight, and how late the log hears of it, in minutes."""

    origin: str
    carrier: str
    leaves: int
    delay: int
    flies: int | None
    departure_heard: int
    arrival_heard: int
    sent_again: int | None


@dataclass(frozen=True)
class Observation:
    airport: str
    hour: int
    temperature: float | None
    heard: int


late = st.one_of(st.integers(0, 3), st.integers(0, 3), st.integers(100, 3_000))
flights = st.builds(
    Flight,
    origin=st.sampled_from(["EWR", "JFK"]),
    carrier=st.sampled_from(["UA", "AA"]),
    leaves=st.integers(0, 4_000),
    delay=st.integers(-20, 300),
    flies=st.one_of(st.integers(30, 600), st.integers(1_430, 1_450), st.none()),
    departure_heard=late,
    arrival_heard=late,
    sent_again=st.one_of(st.none(), st.integers(0, 30), st.integers(100, 3_000)),
)
observations = st.builds(
    Observation,
    airport=st.sampled_from(["EWR", "JFK"]),
    hour=st.integers(0, 60),
    temperature=st.one_of(st.none(), st.integers(-10, 90).map(float)),
    heard=late,
)


def log_of(world: Sequence[Flight], weather: Sequence[Observation]) -> list[tuple[str, bytes]]:
    """Topic and value of every record, in the order of the log; a last flight, days later, closes the rest."""
    sent: list[tuple[int, str, dict[str, object]]] = []
    closing = Flight("LGA", "ZZ", 20_000, 0, 60, 0, 0, None)
    for number, f in enumerate([*world, closing]):
        at = START + f.leaves * MINUTE
        departure = {
            "flight_id": f"{f.carrier}{number}",
            "kind": "departed",
            "carrier": f.carrier,
            "flight": number,
            "tail_number": None,
            "origin": f.origin,
            "destination": "BOS",
            "scheduled_at": stamp(at - f.delay * MINUTE),
            "occurred_at": stamp(at),
            "delay_min": f.delay,
            "reported_at": stamp(at),
        }
        sent.append((f.leaves + f.departure_heard, "departures", departure))
        if f.sent_again is not None:
            sent.append((f.leaves + f.departure_heard + f.sent_again, "departures", departure))
        if f.flies is not None:
            arrival = {
                "flight_id": f"{f.carrier}{number}",
                "carrier": f.carrier,
                "destination": "BOS",
                "arrived_at": stamp(at + f.flies * MINUTE),
                "delay_min": f.delay,
                "air_time_min": f.flies,
                "reported_at": stamp(at),
            }
            sent.append((f.leaves + f.flies + f.arrival_heard, "arrivals", arrival))
    for o in {(o.airport, o.hour): o for o in weather}.values():
        measures = dict.fromkeys(UNMEASURED)
        at = START + timedelta(hours=o.hour)
        observation = {
            "airport": o.airport,
            "observed_at": stamp(at),
            "temperature_f": o.temperature,
            "reported_at": stamp(at),
            **measures,
        }
        sent.append((o.hour * 60 + o.heard, "weather", observation))
    sent.sort(key=lambda item: item[0])
    return [(topic, json.dumps(record).encode()) for _, topic, record in sent]


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


ORACLE = {
    "flights.delays_by_hour": """
        SELECT origin, date_trunc('hour', occurred_at) AS hour,
            date_trunc('hour', occurred_at) + INTERVAL 1 HOUR AS closes_at,
            count(*) AS flights, avg(delay_min) AS mean_delay_min,
            round(quantile_cont(delay_min, 0.9), 1) AS p90_delay_min, avg((delay_min > 15)::INT) AS late_share
        FROM d GROUP BY ALL""",
    "flights.flights": """
        SELECT d.flight_id, d.carrier, d.flight, d.tail_number, d.origin, d.destination, d.scheduled_at,
            d.occurred_at AS departed_at, d.delay_min AS departure_delay_min, a.arrived_at,
            a.delay_min AS arrival_delay_min, a.air_time_min,
            CASE WHEN a.arrived_at IS NULL THEN 'never landed' ELSE 'landed' END AS outcome,
            d.occurred_at + INTERVAL 24 HOUR AS expires_at
        FROM d LEFT JOIN a ON d.flight_id = a.flight_id AND a.arrived_at >= d.occurred_at
            AND a.arrived_at <= d.occurred_at + INTERVAL 24 HOUR""",
    "flights.airport_weather": """
        SELECT airport, observed_at, temperature_f, humidity_pct::DOUBLE AS humidity_pct,
            wind_direction_deg::INT AS wind_direction_deg, wind_speed_mph::DOUBLE AS wind_speed_mph,
            precipitation_in::DOUBLE AS precipitation_in, visibility_mi::DOUBLE AS visibility_mi
        FROM w QUALIFY row_number() OVER (PARTITION BY airport ORDER BY observed_at DESC) = 1""",
}
DAYS = """
    SELECT carrier, (departed_at AT TIME ZONE 'America/New_York')::DATE AS day, count(*) AS flights,
        count(*) FILTER (outcome = 'landed') AS landed, avg(departure_delay_min) AS mean_departure_delay_min,
        avg(arrival_delay_min) AS mean_arrival_delay_min
    FROM live GROUP BY ALL"""


def oracle(log: Sequence[tuple[str, bytes]]) -> duckdb.DuckDBPyConnection:
    """DuckDB over the distinct records as they were sent, typed by itself."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    types = {
        "d": ("departures", "scheduled_at TIMESTAMPTZ, occurred_at TIMESTAMPTZ, flight INT, delay_min INT"),
        "a": ("arrivals", "arrived_at TIMESTAMPTZ, delay_min INT, air_time_min INT"),
        "w": ("weather", "observed_at TIMESTAMPTZ, temperature_f DOUBLE"),
    }
    for view, (topic, columns) in types.items():
        rows = [json.loads(value) for name, value in dict.fromkeys(log) if name == topic]
        casts = ", ".join(f"{c.split()[0]}::{c.split()[1]} AS {c.split()[0]}" for c in columns.split(", "))
        connection.register(f"{view}_sent", pa.Table.from_pylist(rows) if rows else pa.table({"flight_id": []}))
        if rows:
            connection.execute(f"CREATE VIEW {view} AS SELECT * REPLACE ({casts}) FROM {view}_sent")
    return connection


@given(
    world=st.lists(flights, min_size=20, max_size=60),
    weather=st.lists(observations, min_size=5, max_size=20),
    cuts=st.lists(st.integers(1, 99), min_size=4, max_size=7, unique=True),
    restarts=st.sets(st.integers(0, 6), max_size=2),
)
@settings(
    max_examples=3,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_after_reconcile_every_table_equals_what_duckdb_says_of_the_log(
    spark: SparkSession, world: list[Flight], weather: list[Observation], cuts: list[int], restarts: set[int]
) -> None:
    log = log_of(world, weather)
    with tempfile.TemporaryDirectory() as home:
        live = World(spark, Settings(home=Path(home), shuffle_partitions=1, max_files=1))
        bounds = [0, *sorted(len(log) * cut // 100 for cut in cuts), len(log)]
        for number, (first, last) in enumerate(pairwise(bounds)):
            part = log[first:last]
            live.append({t: [v for n, v in part if n == t] for t in ("departures", "arrivals", "weather")})
            if number in restarts:
                live.maintain()
        live.maintain()
        outcomes = live.reconcile()
        note(f"reconciled: {outcomes}")
        assert not [o for o in outcomes if o.unexplained]
        assert_equals_oracle(live, oracle(log))
        assert_corrections_fold(live)
        again = live.reconcile()
        assert not [o for o in again if o.changed or o.files_written or o.unexplained]


def assert_equals_oracle(live: World, expected: duckdb.DuckDBPyConnection) -> None:
    for name, sql in ORACLE.items():
        table = live.registry.find_table(name)
        watermark = live.watermark_ms(name) if table.closes_at else None
        closed = f"{table.closes_at} < make_timestamptz({watermark * 1000})" if watermark else "true"
        found = duckdb.connect()
        found.execute("SET TimeZone = 'UTC'")
        found.register("live", live.rows(name))
        rows = found.sql(f"SELECT * FROM live WHERE {closed}").to_arrow_table()
        should = expected.sql(f"SELECT * FROM ({sql}) WHERE {closed}").to_arrow_table().cast(rows.schema)
        outcome = compare(should, rows, list(table.key))
        assert outcome.equal, (name, outcome)
        assert name == "flights.airport_weather" or outcome.rows > 0
    flights = duckdb.connect()
    flights.execute("SET TimeZone = 'UTC'")
    flights.register("live", live.rows("flights.flights"))
    days = live.rows("flights.carrier_days")
    outcome = compare(flights.sql(DAYS).to_arrow_table().cast(days.schema), days, ["carrier", "day"])
    assert outcome.equal, ("flights.carrier_days", outcome)


def assert_corrections_fold(live: World) -> None:
    """Every correction's `after` is what the table holds, unless a later correction of the key took its place."""
    corrections = live.rows("ledger.corrections").to_pylist()
    last = {(c["table"], c["key"]): c for c in sorted(corrections, key=lambda c: c["version"])}
    for (name, key), correction in last.items():
        if name == "flights.carrier_days":
            continue  # the stream revises these rows, too
        key_columns = live.registry.find_table(name).key
        rows = {
            json.dumps({c: row[c] for c in key_columns}, default=lambda v: v.isoformat()): row
            for row in live.rows(name).to_pylist()
        }
        if correction["change"] == "delete":
            assert key not in rows
        else:
            after = json.loads(correction["after"])
            row = json.loads(json.dumps(rows[key], default=lambda v: v.isoformat()))
            assert after == row
