"""Generator of Nexmark's persons, auctions and bids, by the figures of the published generator.

Of each 50 events one is a person, three are auctions and 46 are bids. An event follows from the seed and its number
alone. Each has a millisecond of its own, so that the queries that ask for the last or the first bid have one answer.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

PERSON, AUCTION, BID = "person", "auction", "bid"
PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Events of each kind in a round of 50."""
ROUND = PERSONS + AUCTIONS + BIDS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
ACTIVE_PERSONS, IN_FLIGHT_AUCTIONS = 1_000, 100
LEAD = 10
"""Ids that are not known yet, of persons and of auctions, which events may name."""
HOT_AUCTION, HOT_SELLER, HOT_BIDDER, HOT_CHANNEL = 2, 4, 4, 2
BATCH = 100
"""All but one in so many events name the hot one: of the last `BATCH` auctions or sellers the first, of bidders the
second."""
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
WITHOUT_CHANNEL_ID = 10
"""The URL of one other channel in so many does not name its channel."""
BYTES = {PERSON: 200, AUCTION: 500, BID: 100}
"""Average size of an event, which `extra` fills up; of a bid without its channel and URL."""
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
START = datetime(2026, 1, 1, 23, 58, 20, tzinfo=UTC)
"""Shortly before a day ends, so that few events are of two days."""
DELAYED, DELAY_S = 0.1, 3
"""The published share of events that are delayed, and by how much at most: less than the watermark of the queries."""


class Event(NamedTuple):
    """A person, an auction or a bid.

    Attributes:
        key: of its record.
        value: columns as the topic declares them; times are RFC 3339 in UTC.
    """

    topic: str
    key: str
    at: datetime
    value: dict[str, Any]


class Sent(NamedTuple):
    """A record in the order of the log.

    Attributes:
        at: when it arrives.
    """

    at: datetime
    topic: str
    key: bytes
    value: bytes


def events(
    end: int, *, first: int = 0, per_second: int = 20, start: datetime = START, seed: int = 1
) -> Iterator[Event]:
    """The events `[first, end)` in the order of their time.

    Args:
        per_second: events in a second of event time, at most 1,000.
    """
    return (_Generator(number, per_second, start, seed).event() for number in range(first, end))


def log_of(some: Iterable[Event], *, late: float = 0.03, repeated: float = 0.03, seed: int = 1) -> list[Sent]:
    """The events as records, in the order in which they arrive.

    Args:
        late: share of the events that arrive 10 to 60 seconds after their time.
        repeated: share of the events that arrive again, up to 60 seconds later.
    """
    sent = []
    for event in some:
        dice = random.Random(f"sent {seed} {event.topic} {event.at}")
        at, value = event.at, json.dumps(event.value, separators=(",", ":")).encode()
        if dice.random() < late:
            at += timedelta(seconds=dice.uniform(10, 60))
        elif dice.random() < DELAYED:
            at += timedelta(seconds=dice.uniform(0, DELAY_S))
        sent.append(Sent(at, event.topic, event.key.encode(), value))
        if dice.random() < repeated:
            again = at + timedelta(seconds=dice.uniform(0, 60))
            sent.append(Sent(again, event.topic, event.key.encode(), value))
    return sorted(sent)


class _Generator:
    """One event. Numbers of persons and auctions count from 0, ids from `FIRST_ID`."""

    def __init__(self, number: int, per_second: int, start: datetime, seed: int) -> None:
        self.dice = random.Random(f"{seed} {number}")
        self.round, self.place = divmod(number, ROUND)
        self.ms = 1_000 / per_second
        self.at = start + timedelta(milliseconds=int(number * self.ms))

    def event(self) -> Event:
        if self.place < PERSONS:
            return self._person()
        return self._auction() if self.place < PERSONS + AUCTIONS else self._bid()

    @property
    def last_person(self) -> int:
        """Number of the newest person."""
        return self.round * PERSONS + min(self.place, PERSONS - 1)

    @property
    def last_auction(self) -> int:
        """Number of the newest auction; -1 before the first."""
        return self.round * AUCTIONS + min(self.place - PERSONS, AUCTIONS - 1)

    def _person(self) -> Event:
        choose = self.dice.choice
        return self._made(
            PERSON,
            {
                "id": FIRST_ID + self.last_person,
                "name": f"{choose(FIRST_NAMES)} {choose(LAST_NAMES)}",
                "email_address": f"{self._text(3, 7)}@{self._text(3, 5)}.com",
                "credit_card": " ".join(f"{self.dice.randrange(10_000):04}" for _ in range(4)),
                "city": choose(CITIES),
                "state": choose(STATES),
            },
        )

    def _auction(self) -> Event:
        is_hot = self.dice.randrange(HOT_SELLER) > 0
        seller = self.last_person // BATCH * BATCH if is_hot else self._some_person()
        initial = self._price()
        # On average an auction is open until as many others have begun as are in flight.
        horizon_ms = int(IN_FLIGHT_AUCTIONS * ROUND // AUCTIONS * self.ms)
        expires = self.at + timedelta(milliseconds=1 + self.dice.randrange(max(2 * horizon_ms, 1)))
        return self._made(
            AUCTION,
            {
                "id": FIRST_ID + self.last_auction,
                "item_name": self._text(3, 20),
                "description": self._text(3, 100),
                "initial_bid": initial,
                "reserve": initial + self._price(),
                "expires": _rfc3339(expires),
                "seller": FIRST_ID + seller,
                "category": FIRST_CATEGORY + self.dice.randrange(CATEGORIES),
            },
        )

    def _bid(self) -> Event:
        is_hot = self.dice.randrange(HOT_AUCTION) > 0
        auction = self.last_auction // BATCH * BATCH if is_hot else self._some_auction()
        is_hot = self.dice.randrange(HOT_BIDDER) > 0
        bidder = self.last_person // BATCH * BATCH + 1 if is_hot else self._some_person()
        channel, url = self._channel()
        return self._made(
            BID,
            {
                "auction": FIRST_ID + auction,
                "bidder": FIRST_ID + bidder,
                "price": self._price(),
                "channel": channel,
                "url": url,
            },
        )

    def _some_person(self) -> int:
        """Any active person, or one that is not known yet."""
        known = self.last_person + 1
        active = min(known, ACTIVE_PERSONS)
        return known - active + self.dice.randrange(active + LEAD)

    def _some_auction(self) -> int:
        """Any auction that may be in flight, or one that is not known yet."""
        least = max(self.last_auction - IN_FLIGHT_AUCTIONS, 0)
        return least + self.dice.randrange(self.last_auction - least + 1 + LEAD)

    def _price(self) -> int:
        """Cents, evenly distributed by order of magnitude, from 1 to 1,000,000 dollars."""
        return round(100 * 10 ** (6 * self.dice.random()))

    def _channel(self) -> tuple[str, str]:
        """A channel and its URL, which is always the same."""
        if self.dice.randrange(HOT_CHANNEL) > 0:
            channel = self.dice.choice(HOT_CHANNELS)
            return channel, _url(channel)
        number = self.dice.randrange(CHANNELS)
        url = _url(f"channel-{number}")
        return f"channel-{number}", url if number % WITHOUT_CHANNEL_ID == 0 else f"{url}&channel_id={number}"

    def _text(self, least: int, most: int) -> str:
        letters = string.ascii_lowercase + "  "
        return "".join(self.dice.choices(letters, k=self.dice.randrange(least, most))).strip()

    def _made(self, topic: str, value: dict[str, Any]) -> Event:
        counted = [one for name, one in value.items() if name not in ("channel", "url")]
        size = sum(len(one) if isinstance(one, str) else 8 for one in counted) + 8
        left = max(BYTES[topic] - size, 0)
        length = self.dice.randint(left - left // 5, left + left // 5)
        value |= {"date_time": _rfc3339(self.at), "extra": "".join(self.dice.choices(string.ascii_lowercase, k=length))}
        return Event(topic, str(value["auction" if topic == BID else "id"]), self.at, value)


def _url(channel: str) -> str:
    dice = random.Random(channel)
    directories = ["".join(dice.choices(string.ascii_lowercase + "_", k=dice.randint(3, 5))) for _ in range(3)]
    return f"https://www.nexmark.com/{'/'.join(directories)}/item.htm?query=1"


def _rfc3339(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03}Z"
