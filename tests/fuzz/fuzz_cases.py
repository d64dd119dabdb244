"""Random cases: small worlds of flights and weather that share one log, each in a key space of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from string import ascii_uppercase, digits

from hypothesis import strategies as st

from twofold.testing.worlds import Keyed

START = datetime(2013, 3, 9, 12, tzinfo=UTC)  # the night of a clock change follows
END_MIN = 13_500
CLOSING_MIN = 40_000
TICK_MIN = 60
UNMEASURED = ("dew_point_f", "wind_gust_mph", "pressure_mb")
MEASURED = ("humidity_pct", "wind_direction_deg", "wind_speed_mph", "precipitation_in", "visibility_mi")
NAMES = ("flight_id", "carrier", "tail_number", "origin", "destination", "airport")
MOST_CASES = 36


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A flight; times are minutes after `START`, names are numbers within the case.

    Attributes:
        flies: minutes to its landing; None: nobody heard of one.
        departure_heard, arrival_heard: minutes until the log has it; below 0 by a reporter's clock that is fast.
        sent_again: minutes until the departure comes a second time.
    """

    origin: int
    carrier: int
    tail: int | None
    leaves: int
    delay: int
    cancelled: bool
    flies: int | None
    departure_heard: int
    arrival_heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One hour's weather, as `Flight` has it."""

    airport: int
    hour: int
    temperature: float | None
    heard: int


@dataclass(frozen=True)
class Case:
    """A few flights and observations that have nothing to do with those of other cases."""

    flights: tuple[Flight, ...]
    weather: tuple[Observation, ...] = ()

    def __len__(self) -> int:
        return len(self.flights) + len(self.weather)

    def smaller(self) -> Iterator[Case]:
        """The case without one half, then without one of its parts; a flight is always in it."""
        parts: tuple[Flight | Observation, ...] = (*self.flights, *self.weather)
        middle = len(parts) // 2
        without = [parts[:middle], parts[middle:]] if middle > 1 else []
        without += [parts[:i] + parts[i + 1 :] for i in range(len(parts))]
        for kept in without:
            flights = tuple(p for p in kept if isinstance(p, Flight))
            if flights:
                yield Case(flights, tuple(p for p in kept if isinstance(p, Observation)))


@dataclass(frozen=True, order=True)
class Sent:
    """A record in the log, in the order of minutes."""

    minute: int
    topic: str
    value: bytes | Keyed


@dataclass(frozen=True)
class Reconciling:
    """A reconcile after a micro-batch, of one table (by number, modulo their count) or of all, perhaps twice."""

    after: int
    table: int | None
    twice: bool


@dataclass(frozen=True)
class Schedule:
    """What befalls the platform while the log grows.

    Attributes:
        cuts: minutes at which micro-batches of ingest end.
        restarts: micro-batches after which the streams take in what is there and stop.
        reconciles: in any order.
        small_rows: the setting in these restarts and reconciles, not at the end; 0: Spark alone refreshes tables.
    """

    cuts: tuple[int, ...]
    restarts: frozenset[int]
    reconciles: tuple[Reconciling, ...]
    small_rows: int = 50_000

    def parts(self, log: Sequence[Sent]) -> Iterator[Mapping[str, list[bytes | Keyed]]]:
        """Micro-batches: the values of each topic."""
        ends = [*sorted(self.cuts), CLOSING_MIN * 2]
        for start, end in zip([-END_MIN, *ends], ends, strict=False):
            part: dict[str, list[bytes | Keyed]] = {}
            for one in log:
                if start <= one.minute < end:
                    part.setdefault(one.topic, []).append(one.value)
            yield part


# What happens far apart at different places never meets: most things are near to each other.
minutes = st.one_of(st.integers(0, 200), st.integers(0, 600), st.integers(0, 4).map(lambda n: 60 * n))
leaves = st.builds(lambda day, minute: day + minute, st.sampled_from([0, 0, 0, 1_260, 10_080]), minutes)
place = st.sampled_from([0, 0, 0, 1])
heard = st.one_of(st.integers(0, 3), st.integers(0, 3), st.integers(-90, 130), st.integers(100, 3_000))
flights = st.builds(
    Flight,
    origin=place,
    carrier=place,
    tail=st.sampled_from([0, 0, 0, 1, None]),
    leaves=leaves,
    delay=st.one_of(st.integers(-20, 300), st.integers(14, 32)),
    cancelled=st.integers(0, 7).map(lambda n: n == 0),
    flies=st.one_of(
        st.integers(30, 120), st.integers(30, 120), st.integers(30, 120), st.integers(1_439, 1_441), st.none()
    ),
    departure_heard=heard,
    arrival_heard=heard,
    sent_again=st.one_of(st.none(), st.integers(0, 30), st.integers(100, 3_000)),
)
observations = st.builds(
    Observation,
    airport=place,
    hour=leaves.map(lambda minute: minute // 60),
    temperature=st.one_of(st.none(), st.integers(-10, 90).map(float)),
    heard=heard,
)
cases = st.builds(
    lambda f, w: Case(tuple(f), tuple({(o.airport, o.hour): o for o in w}.values())),
    st.lists(flights, min_size=2, max_size=8),
    st.lists(observations, min_size=1, max_size=4),
)
reconciles = st.builds(
    Reconciling, after=st.integers(1, 4), table=st.one_of(st.none(), st.integers(0, 99)), twice=st.booleans()
)


def scheduled(
    cut: st.SearchStrategy[int], restarts: st.SearchStrategy[frozenset[int]], *, small_rows: int = 50_000
) -> st.SearchStrategy[Schedule]:
    """Schedules with four or five cuts, and one or two moments of reconciling."""
    return st.builds(
        lambda cuts, restarts, reconciles: Schedule(tuple(sorted(cuts)), restarts, tuple(reconciles), small_rows),
        st.lists(cut, min_size=4, max_size=5, unique=True),
        restarts,
        st.lists(reconciles, min_size=1, max_size=2),
    )


schedules = scheduled(
    st.one_of(st.integers(30, 2_500), st.integers(10_100, END_MIN)),
    st.frozensets(st.integers(0, 4), min_size=1, max_size=2),
)


def log_of(world: Sequence[Case]) -> list[Sent]:
    """Every record in the order of the log.

    Beside the cases a clock sends a record of each topic every hour, so that what is late does not depend on which
    cases share the log; its last records, weeks later, close all that came before.
    """
    assert len(world) <= MOST_CASES, "the first of a carrier's two characters is the case"
    records = [_records(case, *_names(number)) for number, case in enumerate(world)]
    return sorted(chain(_clock(), *records), key=lambda s: s.minute)


def owners(world: Sequence[Case]) -> dict[str, int]:
    """Every name in the records of a case -> the number of the case."""
    found: dict[str, int] = {}
    for number, case in enumerate(world):
        for one in _records(case, *_names(number)):
            record = json.loads(one.value)
            found |= {record[column]: number for column in NAMES if record.get(column)}
    return found


def _names(number: int) -> tuple[str, str]:
    """What the airports and tail numbers of a case begin with, and what its carriers do."""
    first, second = divmod(number, 26)
    return ascii_uppercase[first] + ascii_uppercase[second], (ascii_uppercase + digits)[number]


def _clock() -> Iterator[Sent]:
    flight = Flight(
        origin=25,
        carrier=25,
        tail=25,
        leaves=0,
        delay=0,
        cancelled=False,
        flies=0,
        departure_heard=0,
        arrival_heard=0,
        sent_again=None,
    )
    for minute in [*range(0, END_MIN, TICK_MIN), *range(CLOSING_MIN, CLOSING_MIN + 300, 30)]:
        yield from _of_flight(replace(flight, leaves=minute), "ZZ", "Z", 10_000 + minute)
        if minute % 60 == 0:
            yield from _of_weather(Observation(airport=25, hour=minute // 60, temperature=50.0, heard=0), "ZZ")


def _records(case: Case, space: str, letter: str) -> Iterator[Sent]:
    for number, flight in enumerate(case.flights):
        yield from _of_flight(flight, space, letter, number)
    for observation in case.weather:
        yield from _of_weather(observation, space)


def _of_flight(flight: Flight, space: str, letter: str, number: int) -> Iterator[Sent]:
    carrier = letter + ascii_uppercase[flight.carrier]
    common = {"flight_id": f"{space}{carrier}{number}", "carrier": carrier, "destination": f"{space}C"}
    departure = {
        **common,
        "kind": "cancelled" if flight.cancelled else "departed",
        "flight": number,
        "tail_number": None if flight.tail is None else f"N{space}{flight.tail}",
        "origin": space + ascii_uppercase[flight.origin],
        "scheduled_at": stamp(flight.leaves - (0 if flight.cancelled else flight.delay)),
        "occurred_at": stamp(flight.leaves),
        "delay_min": None if flight.cancelled else flight.delay,
        "reported_at": stamp(flight.leaves),
    }
    heard = flight.leaves + flight.departure_heard
    yield sent(heard, "departures", departure)
    if flight.sent_again is not None:
        yield sent(heard + flight.sent_again, "departures", departure)
    if flight.flies is not None and not flight.cancelled:
        landed = flight.leaves + flight.flies
        arrival = {
            **common,
            "arrived_at": stamp(landed),
            "delay_min": flight.delay,
            "air_time_min": max(flight.flies, 1) % 1_440 + 1,
            "reported_at": stamp(landed),
        }
        yield sent(landed + flight.arrival_heard, "arrivals", arrival)


def _of_weather(observation: Observation, space: str) -> Iterator[Sent]:
    minute = observation.hour * 60
    record = {
        "airport": space + ascii_uppercase[observation.airport],
        "observed_at": stamp(minute),
        "temperature_f": observation.temperature,
        "reported_at": stamp(minute),
        **dict.fromkeys((*MEASURED, *UNMEASURED)),
    }
    yield sent(minute + observation.heard, "weather", record)


def sent(minute: int, topic: str, record: Mapping[str, object]) -> Sent:
    return Sent(minute, topic, json.dumps(record).encode())


def stamp(minute: int) -> str:
    return f"{START + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}"
