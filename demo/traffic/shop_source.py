"""Simulates the customers of a shop: visits with searches, carts, orders and payments; each day is a random seed.

The day decides all events of the visits that begin on it, so that any range of days is the same in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache, lru_cache
from typing import Literal

import msgspec

from twofold.demo.traffic.cart_service import Cart, CartEvent, Command
from twofold.demo.traffic.traffic_record import TrafficRecord

ZONE: tzinfo = UTC
FIRST_DAY, LAST_DAY = date(2026, 1, 1), date(2026, 12, 31)
EARLIEST_BEFORE_MIDNIGHT = timedelta(0)
DEMO = (date(2026, 3, 2), date(2026, 3, 9))
DATED_BY = ("shop.logins", "logged_in_at")
WHAT, WHERE = "a shop's customers", "in the shop"
VISITS = 400
CUSTOMERS = 300
PRODUCTS = ("bowl", "candle", "clock", "cup", "kettle", "lamp", "plate", "rug", "shelf", "stool", "table", "vase")
COUNTRIES = ("AT", "CH", "DE", "DK", "FR", "IT", "NL", "SE")


class Login(TrafficRecord, frozen=True, kw_only=True, rename={"at": "logged_in_at"}):
    """A record of `shop.logins`."""

    topic = "shop.logins"
    keyed_by = "customer"
    login_id: str
    customer: str
    country: str
    at: datetime


class Search(TrafficRecord, frozen=True, kw_only=True, rename={"at": "searched_at"}):
    """A record of `shop.searches`."""

    topic = "shop.searches"
    keyed_by = "search_id"
    search_id: str
    customer: str
    terms: str
    at: datetime


class Click(TrafficRecord, frozen=True, kw_only=True, rename={"at": "clicked_at"}):
    """A record of `shop.clicks`."""

    topic = "shop.clicks"
    keyed_by = "search_id"
    click_id: str
    search_id: str
    product: str
    at: datetime


class Buyer(msgspec.Struct, frozen=True):
    """The customer who orders."""

    customer: str


class Wishes(msgspec.Struct, frozen=True, omit_defaults=True):
    """A customer's wishes about a line of an order."""

    note: str | None = None
    at: datetime | None = None


class Line(msgspec.Struct, frozen=True):
    """A line of an order; the price is a decimal as text."""

    product: str
    price: str | None
    wishes: Wishes | None


class Order(TrafficRecord, frozen=True, kw_only=True, rename={"at": "ordered_at"}):
    """A record of `shop.orders`."""

    topic = "shop.orders"
    keyed_by = "order_id"
    order_id: str
    buyer: Buyer
    product: str
    cents: int
    country: str
    at: datetime
    lines: tuple[Line, ...]
    labels: dict[str, int | None] | None


class Payment(TrafficRecord, frozen=True, kw_only=True, rename={"at": "tried_at"}):
    """A record of `shop.payments`."""

    topic = "shop.payments"
    keyed_by = "payment_id"
    payment_id: str
    order_id: str
    card: str
    outcome: Literal["accepted", "declined"]
    at: datetime


class PostEvent(TrafficRecord, frozen=True, kw_only=True, rename={"at": "happened_at"}):
    """A record of `shop.post_events`."""

    topic = "shop.post_events"
    keyed_by = "post_id"
    post_id: str
    author: str
    kind: Literal["posted", "edited", "deleted"]
    version: int
    product: str | None
    text: str | None
    at: datetime


class FollowEvent(TrafficRecord, frozen=True, kw_only=True, rename={"at": "happened_at"}):
    """A record of `shop.follow_events`."""

    topic = "shop.follow_events"
    keyed_by = "follower"
    follower: str
    author: str
    kind: Literal["followed", "unfollowed"]
    at: datetime


class PageView(TrafficRecord, frozen=True, kw_only=True, rename={"at": "viewed_at"}):
    """A record of `shop.page_views`."""

    topic = "shop.page_views"
    keyed_by = "customer"
    view_id: str
    customer: str
    page: str
    at: datetime


class SavedSearch(TrafficRecord, frozen=True, kw_only=True, rename={"at": "saved_at"}):
    """A record of `shop.saved_searches`; its key says whose search of which name it is."""

    topic = "shop.saved_searches"
    customer: str
    name: str
    query: str
    at: datetime

    @property
    def key(self) -> str:
        return f"{self.customer}/{self.name}"


Record = Login | Search | Click | CartEvent | Order | Payment | PostEvent | FollowEvent | PageView | SavedSearch


def records(start: date, end: date) -> Iterator[tuple[date, list[Record]]]:
    """Yields the records of the visits that begin on each day of `[start, end)`, in order of days."""
    for offset in range((end - start).days):
        day = start + timedelta(days=offset)
        yield day, list(_day(day))


@lru_cache(maxsize=16)
def _day(day: date) -> tuple[Record, ...]:
    dice = random.Random(f"shop {day}")
    visits = (_Visit(dice, day, number) for number in range(VISITS))
    return tuple(record for visit in visits for record in visit.everything())


@cache
def home_of(customer: int) -> str:
    """Returns the country of a customer, by number."""
    return random.Random(f"customer {customer}").choice(COUNTRIES)


class _Visit:
    """One customer's visit; `_at` is the clock of the visit."""

    def __init__(self, dice: random.Random, day: date, number: int) -> None:
        self._dice = dice
        self._customer = dice.randrange(CUSTOMERS)
        self._name = f"{day:%m%d}-{number:04}"
        self._at = datetime.combine(day, time(tzinfo=ZONE)) + timedelta(seconds=dice.randrange(86_400))
        self._cart = Cart(f"b{self._name}")
        self._mistakes = random.Random(f"mistakes {self._name}")

    def everything(self) -> Iterator[Record]:
        """Yields all records of the visit, in order of time."""
        for part in (self.records, self.posts, self.views, self.saves):
            yield from part()

    def records(self) -> Iterator[Record]:
        """Yields a login, then, ever more rarely, searches, a filled cart, an order and its payment."""
        is_intruder = self._dice.random() < 0.02
        home = home_of(self._customer)
        yield Login(
            login_id=f"l{self._name}",
            customer=self._who,
            country=self._dice.choice([c for c in COUNTRIES if c != home]) if is_intruder else home,
            at=self._at,
        )
        if is_intruder:
            # Bought by the customer at home, or by somebody who uses the customer's address: within minutes.
            yield from self._checkout([self._product()], 15, 400)
            return
        if self._dice.random() < 0.8:
            yield from self._search()
        if self._dice.random() < 0.7:
            products: list[str] = []
            yield from self._fill_cart(products)
            if products and self._dice.random() < 0.6:
                yield from self._ask(Command("order"), self._after(5, 120))
                yield from self._mistake()
                yield from self._checkout(products, 1, 3)

    def posts(self) -> Iterator[Record]:
        """Yields, after some visits, changes of the customer's follows, and a post that is edited or deleted later."""
        dice = self._dice = random.Random(f"posts {self._name}")
        for _ in range(dice.choice([0, 0, 1, 2])):
            author = f"c{int(CUSTOMERS * dice.random() ** 3):04}"  # few have many followers
            kinds: list[Literal["followed", "unfollowed"]] = ["followed", "followed", "followed", "unfollowed"]
            yield FollowEvent(follower=self._who, author=author, kind=dice.choice(kinds), at=self._after(5, 120))
        if dice.random() < 0.3:
            product = self._product()
            yield self._post("posted", 1, product, f"the {product} is here", (30, 300))
            if dice.random() < 0.3:
                yield self._post("edited", 2, product, f"the {product} is here, and broken", (30, 3_000))
            if dice.random() < 0.1:
                yield self._post("deleted", 3, None, None, (30, 3_000))

    def views(self) -> Iterator[Record]:
        """Yields page views at the end of the visit."""
        dice = self._dice = random.Random(f"views {self._name}")
        for number in range(dice.randrange(4)):
            page = f"/{self._product()}"
            yield PageView(view_id=f"v{self._name}-{number}", customer=self._who, page=page, at=self._after(2, 90))

    def saves(self) -> Iterator[Record]:
        """Yields, after few visits, a search for posts that the customer saves, and perhaps changes later."""
        dice = self._dice = random.Random(f"saves {self._name}")
        if dice.random() < 0.03:
            one, other = dice.sample(PRODUCTS, 2)
            queries = (f"{one}s", f'"The {one} is here" NOT broken', f"{one} OR {other} broken", f"{one} version:2..")
            yield self._saved(dice.choice(queries), (5, 60))
            if dice.random() < 0.5:
                yield self._saved(dice.choice(queries), (60, 3_000))

    def _saved(self, query: str, pause: tuple[int, int]) -> SavedSearch:
        return SavedSearch(customer=self._who, name=self._name, query=query, at=self._after(*pause))

    def _post(
        self,
        kind: Literal["posted", "edited", "deleted"],
        version: int,
        product: str | None,
        text: str | None,
        pause: tuple[int, int],
    ) -> PostEvent:
        return PostEvent(
            post_id=f"m{self._name}",
            author=self._who,
            kind=kind,
            version=version,
            product=product,
            text=text,
            at=self._after(*pause),
        )

    @property
    def _who(self) -> str:
        return f"c{self._customer:04}"

    def _after(self, least_s: int, most_s: int) -> datetime:
        self._at += timedelta(seconds=self._dice.randint(least_s, most_s))
        return self._at

    def _product(self) -> str:
        return self._dice.choice(PRODUCTS)

    def _search(self) -> Iterator[Record]:
        for n in range(self._dice.randint(1, 3)):
            product = self._product()
            search_id = f"s{self._name}-{n}"
            yield Search(search_id=search_id, customer=self._who, terms=f"a {product}", at=self._after(5, 90))
            for click in range(self._dice.choice([0, 0, 1, 1, 2])):
                # One click in twenty comes when the search is long forgotten.
                pause = (600, 1_800) if self._dice.random() < 0.05 else (2, 120)
                yield Click(
                    click_id=f"i{self._name}-{n}-{click}", search_id=search_id, product=product, at=self._after(*pause)
                )

    def _fill_cart(self, products: list[str]) -> Iterator[CartEvent]:
        """Adds some products to the cart and removes some; appends the remaining ones to `products`."""
        for _ in range(self._dice.randint(1, 4)):
            yield from self._mistake()
            product, quantity = self._product(), self._dice.randint(1, 3)
            yield from self._ask(Command("add", product, quantity), self._pause())
            products.append(product)
            if self._dice.random() < 0.2:
                yield from self._ask(Command("remove", product, self._cart.quantity(product)), self._pause())
                products[:] = [other for other in products if other != product]

    def _ask(self, command: Command, at: datetime) -> Iterator[CartEvent]:
        event = self._cart.handle(command, at)
        if event:
            yield event

    def _mistake(self) -> Iterator[CartEvent]:
        """Requests, once in ten, to remove more than the cart can have; the request is refused."""
        if self._mistakes.random() < 0.1:
            yield from self._ask(Command("remove", self._mistakes.choice(PRODUCTS), 99), self._at)

    def _pause(self) -> datetime:
        # One pause in thirty is longer than the hour after which a cart counts as abandoned.
        return self._after(*((3_601, 9_000) if self._dice.random() < 1 / 30 else (5, 240)))

    def _checkout(self, products: Sequence[str], least_s: int, most_s: int) -> Iterator[Record]:
        ordered = self._order(products, "", self._after(least_s, most_s))
        yield ordered
        if self._dice.random() < 0.03:
            yield self._order(products, "again", self._after(1, 20))
        yield from self._pay(ordered)

    def _order(self, products: Sequence[str], again: str, at: datetime) -> Order:
        prices = [self._dice.randint(199, 20_000) for _ in products]
        return Order(
            order_id=f"o{self._name}{again}",
            buyer=Buyer(self._who),
            product=products[0],
            cents=sum(prices),
            country=home_of(self._customer),
            at=at,
            lines=tuple(
                Line(product, f"{cents // 100}.{cents % 100:02}", self._wishes(at))
                for product, cents in zip(products, prices, strict=True)
            ),
            labels={"gift": self._dice.choice([1, None])} if self._dice.random() < 0.1 else None,
        )

    def _wishes(self, at: datetime) -> Wishes | None:
        if self._dice.random() < 0.8:
            return None
        note = self._dice.choice(["leave it at the door", "für Zoë", None])
        return Wishes(note, at + timedelta(days=self._dice.randint(1, 5)) if self._dice.random() < 0.5 else None)

    def _pay(self, order: Order) -> Iterator[Payment]:
        """Yields payments of 19 in 20 orders: most at once, some late or with two cards, a few with guessed cards."""
        dice, card = self._dice, f"k{self._customer:04}"
        kind = dice.random()
        if kind < 0.05:
            return
        if kind < 0.08:
            yield self._payment("late", order.order_id, card, "accepted", (3_700, 20_000))
        elif kind < 0.1:
            yield self._payment("unknown", f"x{self._name}", card, "accepted", (5, 300))
        elif kind < 0.13:
            stolen = f"k{self._name}"
            for n in range(3):
                yield self._payment(f"guess{n}", order.order_id, stolen, "declined", (2, 60))
            yield self._payment("guessed", order.order_id, stolen, "accepted", (2, 60))
        else:
            if kind < 0.2:
                yield self._payment("declined", order.order_id, card, "declined", (5, 120))
            yield self._payment("", order.order_id, card, "accepted", (5, 300))
            if kind > 0.98:
                yield self._payment("twice", order.order_id, card, "accepted", (1, 30))

    def _payment(
        self, name: str, order_id: str, card: str, outcome: Literal["accepted", "declined"], pause: tuple[int, int]
    ) -> Payment:
        return Payment(
            payment_id=f"y{self._name}{name}",
            order_id=order_id,
            card=card,
            outcome=outcome,
            at=self._after(*pause),
        )
