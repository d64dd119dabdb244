"""The domains that have traffic, and the interface of a source of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Protocol

from twofold.demo.traffic import flight_source, refund_sender, shop_database, shop_source
from twofold.infra.errors import BadArgument


class Record(Protocol):
    """A record of a perfect reporter, a struct that msgspec encodes."""

    @property
    def topic(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def at(self) -> datetime:
        """The time of the event."""


class TrafficSource(Protocol):
    """The interface of a module with the records of each day.

    Attributes:
        ZONE: its days begin at midnight there.
        FIRST_DAY, LAST_DAY: the days that it has.
        EARLIEST_BEFORE_MIDNIGHT: no record happens longer than this before its day.
        DEMO: the first day of the demo, and the first after it.
        DATED_BY: a topic with records of each day, and its column that says which day.
        WHAT, WHERE: in words.
    """

    ZONE: tzinfo
    FIRST_DAY: date
    LAST_DAY: date
    EARLIEST_BEFORE_MIDNIGHT: timedelta
    DEMO: tuple[date, date]
    DATED_BY: tuple[str, str]
    WHAT: str
    WHERE: str

    def records(self, start: date, end: date) -> Iterator[tuple[date, Sequence[Record]]]:
        """Yields the records of each day of `[start, end)`, in order of days."""


DATABASES = {"shop": shop_database}
"""Domain -> the module that writes to the captured database for it."""
WEBHOOKS = {"shop": refund_sender}
"""Domain -> the module that sends webhooks to it."""


@dataclass(frozen=True, kw_only=True)
class Mission:
    """A fault that the demo makes in a domain, and a definition that it changes.

    Attributes:
        topic, column, time: the column of events of a day by this time that a faulty decoder misreads.
        misread: what it would read, in DataFusion's SQL.
        table: whose definition is changed.
        before, after: the text that is changed in its file.
    """

    topic: str
    column: str
    time: str
    misread: str
    table: str
    before: str
    after: str


MISSIONS = {
    "flights": Mission(
        topic="flights.departures",
        column="delay_min",
        time="occurred_at",
        misread="abs(delay_min) + 1",
        table="flights.delays_by_hour",
        before="> 15",
        after="> 20",
    ),
    "shop": Mission(
        topic="shop.orders",
        column="cents",
        time="ordered_at",
        misread="cents * 10",
        table="shop.abandoned_carts",
        before="INTERVAL 1 HOUR",
        after="INTERVAL 2 HOURS",
    ),
}
"""Domain -> what its demo rewrites."""
FOLLOWED = {"shop": ("shop.guessed_cards", refund_sender.TOPIC, "shop.customer_changes", "customer")}
"""Domain -> a table whose rows the demo sends to a receiver, a topic whose records it hands to workers, and one of
persons, of whom it forgets one, with their kind."""
SOURCES: Mapping[str, TrafficSource] = {"flights": flight_source, "shop": shop_source}


def source_of(domain: str) -> TrafficSource:
    """Returns the source of a domain.

    Raises:
        BadArgument: the domain has none.
    """
    if domain not in SOURCES:
        raise BadArgument(
            f"There is no traffic for the domain {domain!r}.", hint=f"The domains are {', '.join(SOURCES)}."
        )
    return SOURCES[domain]


def require_days(domain: str, start: date, end: date) -> None:
    """Refuses days that the domain's source does not have.

    Raises:
        BadArgument: `[start, end)` is empty, or exceeds the days of the source.
    """
    source = source_of(domain)
    if start >= end:
        raise BadArgument(
            f"start={start} is not before end={end}.", hint="The range is half-open: end is not part of it."
        )
    first, last = source.FIRST_DAY, source.LAST_DAY
    if start < first or end > last + timedelta(days=1):
        raise BadArgument(
            f"[{start}, {end}) leaves the source, which has the days from {first} to {last}.",
            hint=f"Choose start >= {first} and end <= {last + timedelta(days=1)}.",
        )
