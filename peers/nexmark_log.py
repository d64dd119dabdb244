"""The log of Nexmark's benchmark: its events in order of their time, one in a hundred sent twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from benchmarks.nexmark import nexmark_events
from twofold.infra.project.settings import Settings

DOMAIN = "nexmark"
PER_SECOND = 1_000  # of event time
TWICE = 100
WATERMARK = timedelta(seconds=4)
LONGEST = timedelta(seconds=20)  # a session of one bid in a window's time, and its gap
MIDNIGHT = datetime.fromisoformat("2026-01-02T00:00:00Z")


def began_at(events: int) -> datetime:
    """Event time of the first of so many events: a day ends in the middle, so that there are rows of a closed day."""
    return MIDNIGHT - timedelta(seconds=events / PER_SECOND / 2)


def closed_before(events: int) -> datetime:
    """Before this every row of a window or of a session has closed."""
    return began_at(events) + timedelta(seconds=events / PER_SECOND) - WATERMARK - LONGEST


def records(events: int) -> dict[str, int]:
    """Records of each topic."""
    counts: Counter[str] = Counter()
    for number in range(events):
        counts[_topic(number)] += 2 if number % TWICE == 0 else 1
    return {f"{DOMAIN}.{topic}": count for topic, count in counts.items()}


def fill(settings: Settings, topics: set[str], events: int) -> None:
    """Write these topics' records of the first so many events.

    The key is the event's number, not the one that the topics declare: hot auctions would put one partition ahead of
    the others, and which records are late then would differ by engine.
    """
    from kafka import KafkaProducer

    wanted = {topic.partition(".")[2] for topic in topics}
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, linger_ms=50, batch_size=262_144)
    for number, event in enumerate(_events(events)):
        if event.topic in wanted:
            value = json.dumps(event.value, separators=(",", ":")).encode()
            for _ in range(2 if number % TWICE == 0 else 1):
                producer.send(f"{DOMAIN}.{event.topic}", key=str(number).encode(), value=value)
    producer.flush()
    producer.close()


def _events(events: int) -> Iterator[nexmark_events.Event]:
    return nexmark_events.events(events, per_second=PER_SECOND, start=began_at(events))


def _topic(number: int) -> str:
    place = number % nexmark_events.ROUND
    if place < nexmark_events.PERSONS:
        return nexmark_events.PERSON
    return nexmark_events.AUCTION if place < nexmark_events.PERSONS + nexmark_events.AUCTIONS else nexmark_events.BID
