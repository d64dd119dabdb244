"""DuckDB's answer to what every table must hold, from the records of a log as they were sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

import duckdb
import pyarrow as pa

from tests.fuzz.fuzz_cases import Sent
from twofold.demo.traffic.expected import expected_tables
from twofold.demo.traffic.table_diff import TableComparison, compare
from twofold.testing.worlds import World

VIEWS = """
    CREATE TABLE departed AS
    SELECT DISTINCT carrier, flight::INTEGER AS flight, tail_number AS tailnum, origin, destination AS dest,
        delay_min::INTEGER AS dep_delay, NULL::INTEGER AS arrival_minute, scheduled_at::TIMESTAMPTZ AS scheduled_at,
        occurred_at::TIMESTAMPTZ AS departed_at, flight_id
    FROM departures WHERE kind = 'departed';

    CREATE TABLE flown AS
    SELECT departed.* EXCLUDE (arrival_minute), a.delay_min::INTEGER AS arr_delay,
        a.air_time_min::INTEGER AS air_time, a.arrived_at::TIMESTAMPTZ AS arrived_at
    FROM departed LEFT JOIN (SELECT DISTINCT * FROM arrivals) a ON a.flight_id = departed.flight_id
        AND a.arrived_at::TIMESTAMPTZ BETWEEN departed_at AND departed_at + INTERVAL 24 HOURS;

    CREATE TABLE observed AS
    SELECT DISTINCT airport AS origin, temperature_f::DOUBLE AS temp, humidity_pct::DOUBLE AS humid,
        wind_direction_deg::INTEGER AS wind_dir, wind_speed_mph::DOUBLE AS wind_speed,
        precipitation_in::DOUBLE AS precip, visibility_mi::DOUBLE AS visib, observed_at::TIMESTAMPTZ AS observed_at
    FROM weather;
"""
"""The relations that `demo/traffic/expected/flights/source.sql` makes of the files, made of a log instead."""


class Oracle:
    """What tables must hold when everything of a log has been taken into account."""

    def __init__(self, log: Sequence[Sent]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for topic in ("departures", "arrivals", "weather"):
            rows = [json.loads(sent.value) for sent in log if sent.topic == topic]
            self._connection.register(topic, pa.Table.from_pylist(rows))
        self._connection.execute(VIEWS)

    def expected(self, table: str, before: datetime) -> pa.Table:
        """The rows that are final before an instant."""
        query = expected_tables.query_of(table)
        return self._connection.execute(
            f"SELECT * FROM ({query}) WHERE {expected_tables.is_final(table, before)}"
        ).to_arrow_table()

    def is_final(self, table: str, before: datetime) -> str:
        return expected_tables.is_final(table, before)

    @staticmethod
    def faults(world: World) -> list[str]:
        """Matches that name another record than that of the flight which they name."""
        connection = duckdb.connect()
        for name in ("missed_turnarounds", "departures", "arrivals"):
            connection.register(name, world.rows(f"flights.{name}"))
        wrong = []
        for topic, flight, record in (
            ("arrivals", "landed_flight_id", "landed_record"),
            ("departures", "left_flight_id", "left_record"),
        ):
            wrong += connection.execute(
                f"""SELECT {flight}, {record} FROM missed_turnarounds LEFT JOIN {topic}
                ON _partition = {record}.partition AND _offset = {record}.offset
                WHERE {record}.topic IS DISTINCT FROM 'flights.{topic}' OR flight_id IS DISTINCT FROM {flight}"""
            ).fetchall()
        return [f"flights.missed_turnarounds names {record} for {flight}" for flight, record in wrong]


def judged(
    world: World,
    table: str,
    expected: pa.Table,
    before: datetime,
    is_final: Callable[[str, datetime], str] = expected_tables.is_final,
) -> TableComparison:
    """What the table holds against what it should hold, of rows that are final before an instant."""
    declared = world.registry.find_table(table)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("live", world.rows(table))
    live = connection.execute(f"SELECT * FROM live WHERE {is_final(table, before)}").to_arrow_table()
    exact = live.select(expected.column_names).cast(expected.schema)
    return compare(expected, exact, declared.primary_key, declared.tolerances)
