"""The log that every engine reads: flights that depart in order and land within hours, some records sent twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEPARTURES, ARRIVALS = "flights.departures", "flights.arrivals"
FIRST_S = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp())
STEP_S = 10  # from one departure to the next: 120 an hour of each origin
NEVER_LANDS = 20  # one flight in so many
TWICE = 100  # one record in so many is sent twice, as the traffic of `twofold demo` does
WATERMARK = timedelta(hours=2)
LONGEST_FLIGHTS = 120 * 60 // STEP_S  # departures in the time that the longest flight takes


def departed_at(number: int) -> datetime:
    """Event time of a departure."""
    return datetime.fromtimestamp(FIRST_S + number * STEP_S, UTC)


def records(first: int, end: int) -> dict[str, int]:
    """Records of each topic for the flights `[first, end)`."""
    landed = sum(1 for n in range(first, end) if n % NEVER_LANDS)
    return {
        DEPARTURES: end - first + sum(1 for n in range(first, end) if n % TWICE == 0),
        ARRIVALS: landed + sum(1 for n in range(first, end) if n % TWICE == 1),
    }


_LEFT = f"timestamp_seconds({FIRST_S} + id * {STEP_S})"
_LANDED = f"timestamp_seconds({FIRST_S} + id * {STEP_S} + (60 + id % 60) * 60)"
_FIELDS = {
    DEPARTURES: {
        "flight_id": "concat('UA', id)",
        "kind": "'departed'",
        "carrier": "element_at(array('UA', 'AA', 'DL', 'B6'), cast(id % 4 + 1 AS int))",
        "flight": "cast(id % 9000 AS int)",
        "tail_number": "concat('N', id % 5000)",
        "origin": "element_at(array('EWR', 'JFK', 'LGA'), cast(id % 3 + 1 AS int))",
        "destination": "concat(char(65 + id % 5), char(65 + id % 7), 'X')",
        "scheduled_at": _LEFT,
        "occurred_at": _LEFT,
        "delay_min": "cast(id % 200 AS int)",
        "reported_at": _LEFT,
    },
    ARRIVALS: {
        "flight_id": "concat('UA', id)",
        "carrier": "element_at(array('UA', 'AA', 'DL', 'B6'), cast(id % 4 + 1 AS int))",
        "destination": "concat(char(65 + id % 5), char(65 + id % 7), 'X')",
        "arrived_at": _LANDED,
        "delay_min": "cast(id % 150 AS int)",
        "air_time_min": "cast(60 + id % 60 AS int)",
        "reported_at": _LANDED,
    },
}
_SENT = {DEPARTURES: "true", ARRIVALS: f"id % {NEVER_LANDS} <> 0"}
_TWICE = {DEPARTURES: 0, ARRIVALS: 1}


def fill(spark: SparkSession, settings: Settings, topic: str, flights: int) -> None:
    """Write a topic's records of the flights `[0, flights)`, in the order of their time."""
    fields = ", ".join(f"'{name}', {_text(sql)}" for name, sql in _FIELDS[topic].items())
    copies = f"explode(array_repeat(id, if(id % {TWICE} = {_TWICE[topic]}, 2, 1))) AS id"
    (
        spark.range(flights, numPartitions=1)
        .where(_SENT[topic])
        .selectExpr(copies)
        .selectExpr("concat('UA', id) AS key", f"to_json(named_struct({fields})) AS value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("kafka.linger.ms", "50")
        .option("kafka.batch.size", "262144")
        .option("topic", topic)
        .save()
    )


def follow(settings: Settings, first: int, flights: int, rate: float) -> list[float]:
    """Send the records of the flights `[first, first + flights)`, `rate` records a second; when each left."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=5)
    began, sent, left = time.time(), 0, []
    for number in range(first, first + flights):
        for topic, key, value in _of_flight(number):
            producer.send(topic, key=key, value=value)
            sent += 1
        left.append(time.time())
        ahead = began + sent / rate - time.time()
        if ahead > 0.005:
            time.sleep(ahead)
    producer.flush()
    producer.close()
    return left


def _of_flight(number: int) -> Iterator[tuple[str, bytes, bytes]]:
    """What is sent when a flight departs: its departure, and the arrivals of the flights that land by then."""
    key = f"UA{number}".encode()
    value = json.dumps(departure(number)).encode()
    for _ in range(2 if number % TWICE == 0 else 1):
        yield DEPARTURES, key, value
    arrived = number - LONGEST_FLIGHTS
    if arrived >= 0 and arrived % NEVER_LANDS:
        value = json.dumps(arrival(arrived)).encode()
        for _ in range(2 if arrived % TWICE == 1 else 1):
            yield ARRIVALS, f"UA{arrived}".encode(), value


def departure(number: int) -> dict[str, object]:
    """A record of the topic of departures."""
    left = _iso(departed_at(number))
    return {
        "flight_id": f"UA{number}",
        "kind": "departed",
        "carrier": ("UA", "AA", "DL", "B6")[number % 4],
        "flight": number % 9000,
        "tail_number": f"N{number % 5000}",
        "origin": ("EWR", "JFK", "LGA")[number % 3],
        "destination": f"{chr(65 + number % 5)}{chr(65 + number % 7)}X",
        "scheduled_at": left,
        "occurred_at": left,
        "delay_min": number % 200,
        "reported_at": left,
    }


def arrival(number: int) -> dict[str, object]:
    """A record of the topic of arrivals."""
    landed = _iso(departed_at(number) + timedelta(minutes=60 + number % 60))
    return {
        "flight_id": f"UA{number}",
        "carrier": ("UA", "AA", "DL", "B6")[number % 4],
        "destination": f"{chr(65 + number % 5)}{chr(65 + number % 7)}X",
        "arrived_at": landed,
        "delay_min": number % 150,
        "air_time_min": 60 + number % 60,
        "reported_at": landed,
    }


def _text(sql: str) -> str:
    return f"""date_format({sql}, "yyyy-MM-dd'T'HH:mm:ss'Z'")""" if sql.startswith("timestamp_seconds") else sql


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
