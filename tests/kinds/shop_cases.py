"""Random cases of the shop: a few orders and attempts to pay, near enough to each other to meet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from string import ascii_uppercase
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.fuzz_cases import CLOSING_MIN, END_MIN, TICK_MIN, Sent, scheduled, sent, stamp
from twofold.testing.worlds import Keyed

WORDS = ("lamp", "Lamps", "red", "réd", "the", "is", "here,", "here", "lámp.")
"""The words of posts, some of which are the same to a search."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order; times are minutes, as those of a `Flight`, names are numbers within the case.

    Attributes:
        lines: what is within it, as the record has it; None: nothing is said.
        labels: likewise, by name.
    """

    customer: int
    product: int
    country: int
    minute: int
    heard: int
    sent_again: int | None
    lines: tuple[Line, ...] | None = None
    labels: tuple[tuple[str, int | None], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of an order: a number of a product, and what may be absent at each depth.

    Attributes:
        wishes: None: there are none; else a note and the minute for which it is wished, of which each may be absent.
    """

    product: int
    price: str | None
    wishes: tuple[str | None, int | None] | None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to pay an order by its number, modulo their count; None: an order that nobody knows."""

    order: int | None
    card: int
    accepted: bool
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class CartEvent:
    """What happens to one of two carts; `version` is the event's number, which two events may claim."""

    cart: int
    version: int
    kind: str
    product: int
    quantity: int
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search, as an `Order` has it."""

    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class Click:
    """A click on a result of a search, by its number modulo their count; None: of a search that nobody knows."""

    search: int | None
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class Login:
    """A login of a customer."""

    customer: int
    country: int
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class PostEvent:
    """What happens to one of three posts; events may disagree on its author, and claim one version.

    Attributes:
        words: of its text, from `WORDS`.
    """

    post: int
    author: int
    kind: str
    version: int
    product: int | None
    words: tuple[str, ...]
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class FollowEvent:
    """One of four customers begins or ceases to follow an author."""

    follower: int
    author: int
    kind: str
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class SavedSearch:
    """A customer saves or changes one of three searches, or removes it: None; one that ends in `(` cannot be read."""

    search: int
    query: str | None
    minute: int
    heard: int
    sent_again: int | None


Part = Order | Attempt | CartEvent | Search | Click | Login | PostEvent | FollowEvent | SavedSearch


@dataclass(frozen=True)
class Case:
    """What has nothing to do with other cases."""

    orders: tuple[Order, ...]
    attempts: tuple[Attempt, ...] = ()
    cart_events: tuple[CartEvent, ...] = ()
    searches: tuple[Search, ...] = ()
    clicks: tuple[Click, ...] = ()
    logins: tuple[Login, ...] = ()
    post_events: tuple[PostEvent, ...] = ()
    follow_events: tuple[FollowEvent, ...] = ()
    saved_searches: tuple[SavedSearch, ...] = ()

    def __len__(self) -> int:
        return sum(len(getattr(self, part.name)) for part in fields(self))

    def smaller(self) -> Iterator[Case]:
        """The case without one of its parts; an attempt or click goes before what it is of can change."""
        for name in (
            "attempts",
            "cart_events",
            "clicks",
            "logins",
            "post_events",
            "follow_events",
            "saved_searches",
            "searches",
            "orders",
        ):
            some = getattr(self, name)
            for n in range(len(some)):
                yield replace(self, **{name: some[:n] + some[n + 1 :]})
            if len(some) > 1 and name != "orders":
                yield replace(self, **{name: ()})


heard = st.one_of(st.integers(0, 3), st.integers(-20, 130), st.integers(100, 3_000))
sent_again = st.one_of(st.none(), st.none(), st.integers(0, 30), st.integers(100, 3_000))
number = st.sampled_from([0, 0, 0, 1])
lines = st.builds(
    Line,
    product=number,
    price=st.sampled_from(["0.10", "0.20", "1000000.01", "-3", None]),
    wishes=st.one_of(
        st.none(), st.tuples(st.sampled_from(["soon", "ü", "", None]), st.one_of(st.none(), st.integers(0, 99)))
    ),
)
orders = st.builds(
    Order,
    lines=st.one_of(st.none(), st.lists(lines, max_size=3).map(tuple)),
    labels=st.one_of(
        st.none(),
        st.lists(
            st.tuples(st.sampled_from("cba"), st.sampled_from([1, 2**40, None])), unique_by=lambda pair: pair[0]
        ).map(tuple),
    ),
    customer=number,
    product=number,
    country=number,
    minute=st.one_of(st.integers(0, 12), st.integers(0, 12), st.sampled_from([0, 5, 6, 60]), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
attempts = st.builds(
    Attempt,
    order=st.sampled_from([0, 0, 1, 2, None]),
    card=number,
    accepted=st.booleans(),
    minute=st.one_of(st.integers(0, 70), st.sampled_from([0, 60, 61, 65, 66]), st.integers(0, 250)),
    heard=heard,
    sent_again=sent_again,
)
guesses = st.builds(
    # Most are three declined ones and an accepted one of one card, within about ten minutes.
    lambda some, minutes: tuple(
        replace(attempt, card=0, accepted=nth == 3, minute=minute)
        for nth, (attempt, minute) in enumerate(zip(some, sorted(minutes), strict=True))
    ),
    st.tuples(attempts, attempts, attempts, attempts),
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 12), st.sampled_from([9, 10, 11, 12])),
)
cart_events = st.builds(
    CartEvent,
    cart=number,
    version=st.integers(1, 5),
    kind=st.sampled_from(["added", "added", "added", "removed", "ordered"]),
    product=number,
    quantity=st.integers(1, 3),
    minute=st.one_of(st.integers(0, 30), st.sampled_from([0, 60, 61]), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
searches = st.builds(Search, minute=st.integers(0, 60), heard=heard, sent_again=sent_again)
clicks = st.builds(
    Click,
    search=st.sampled_from([0, 0, 1, 2, None]),
    minute=st.one_of(st.integers(0, 70), st.sampled_from([0, 10, 11])),
    heard=heard,
    sent_again=sent_again,
)
logins = st.builds(
    Login,
    customer=number,
    country=number,
    minute=st.one_of(st.integers(0, 12), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
post_texts = st.lists(st.sampled_from(WORDS), max_size=5).map(tuple)
words = st.sampled_from(["lamp", "lamps", "red", "LÁMP", "here", '"red lamp"', '"the lamps"', '"lamp, is red"'])
search_parts = st.builds(
    "{}{}".format,
    st.sampled_from(["", "", "NOT "]),
    st.one_of(words, words, words, st.sampled_from(["version:2..", "version:..1", "version:2..2"])),
)
queries = st.lists(st.lists(search_parts, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=2).map(
    " OR ".join
)
saved_searches = st.builds(
    SavedSearch,
    search=st.sampled_from([0, 0, 1, 2]),
    query=st.one_of(queries, queries, queries, st.sampled_from([None, "lamp ("])),
    minute=st.one_of(st.integers(0, 3), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
post_events = st.builds(
    PostEvent,
    post=st.sampled_from([0, 0, 1, 2]),
    author=number,
    kind=st.sampled_from(["posted", "posted", "edited", "edited", "deleted"]),
    version=st.integers(1, 3),
    product=st.sampled_from([0, 1, None]),
    words=post_texts,
    minute=st.one_of(st.integers(0, 3), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
follow_events = st.builds(
    FollowEvent,
    follower=st.integers(0, 3),
    author=number,
    kind=st.sampled_from(["followed", "followed", "followed", "unfollowed"]),
    minute=st.one_of(st.integers(0, 3), st.integers(0, 200)),
    heard=heard,
    sent_again=sent_again,
)
paid_cases = st.builds(
    lambda some, others, guess: Case(tuple(some), (*others, *guess)),
    st.lists(orders, min_size=2, max_size=5),
    st.lists(attempts, min_size=2, max_size=6),
    st.one_of(st.just(()), guesses),
)
visited_cases = st.builds(
    lambda some, events, *others: Case(tuple(some), (), tuple(_once(events)), *map(tuple, others)),
    st.lists(orders, min_size=1, max_size=2),
    st.lists(cart_events, min_size=2, max_size=5),
    st.lists(searches, min_size=1, max_size=2),
    st.lists(clicks, min_size=1, max_size=3),
    st.lists(logins, min_size=1, max_size=2),
)
followed_cases = st.builds(
    lambda posts, follows, saved: Case(
        (), post_events=tuple(posts), follow_events=tuple(follows), saved_searches=tuple(saved)
    ),
    st.lists(post_events, min_size=1, max_size=5),
    st.lists(follow_events, min_size=1, max_size=8),
    st.lists(saved_searches, min_size=1, max_size=5),
)
cases = st.one_of(paid_cases, visited_cases, followed_cases)
"""Of a checkout, of a visit, of timelines and searches: all of them in one would be too much for Hypothesis to draw."""


def _once(events: Sequence[CartEvent]) -> list[CartEvent]:
    """No two events with one number and one time, which would be one record, sent with two contents."""
    return list({(event.cart, event.version, event.minute): event for event in events}.values())


schedules = scheduled(
    st.one_of(st.integers(20, 150), st.integers(150, 3_000)),
    st.builds(lambda first, more: more | {first}, st.integers(0, 1), st.frozensets(st.integers(2, 4), max_size=1)),
    small_rows=0,
)


def log_of(world: Sequence[Case]) -> list[Sent]:
    """Every record in the order of the log, with a clock that keeps the shop's time going."""
    records = [_records(case, _space(nth)) for nth, case in enumerate(world)]
    return sorted(chain(_clock(), *records), key=lambda record: record.minute)


def owners(world: Sequence[Case]) -> dict[str, int]:
    """Every name of a case -> the number of the case."""
    kinds = {
        "o": 5,
        "x": 10,
        "y": 10,
        "c": 2,
        "p": 2,
        "k": 2,
        "b": 2,
        "s": 3,
        "z": 4,
        "i": 4,
        "l": 3,
        "m": 3,
        "a": 2,
        "f": 4,
        "q": 3,
    }
    return {
        f"{_space(nth)}{kind}{n}": nth for nth in range(len(world)) for kind, most in kinds.items() for n in range(most)
    }


def _space(nth: int) -> str:
    first, second = divmod(nth, 26)
    return ascii_uppercase[first] + ascii_uppercase[second]


def _clock() -> Iterator[Sent]:
    for minute in [*range(0, END_MIN, TICK_MIN), *range(CLOSING_MIN, CLOSING_MIN + 300, TICK_MIN)]:
        at: dict[str, Any] = {"minute": minute, "heard": 0, "sent_again": None}
        yield from _of_order(Order(customer=0, product=0, country=0, **at), "ZZ", minute)
        yield from _of_attempt(Attempt(order=0, card=0, accepted=True, **at), f"ZZo{minute}", "ZZ", minute)
        event = CartEvent(cart=minute, version=1, kind="added", product=0, quantity=1, **at)
        yield from _of_cart(event, "ZZ")
        yield from _of_search(Search(**at), "ZZ", minute)
        yield from _of_click(Click(search=0, **at), f"ZZs{minute}", "ZZ", minute)
        yield from _of_login(Login(customer=0, country=0, **at), "ZZ", minute)
    yield from _of_saved(SavedSearch(search=0, query="a clock", minute=0, heard=0, sent_again=None), "ZZ")


def _records(case: Case, space: str) -> Iterator[Sent]:
    for n, order in enumerate(case.orders):
        yield from _of_order(order, space, n)
    for n, attempt in enumerate(case.attempts):
        known = attempt.order is not None and case.orders
        order_id = f"{space}o{(attempt.order or 0) % len(case.orders)}" if known else f"{space}x{n}"
        yield from _of_attempt(attempt, order_id, space, n)
    for event in case.cart_events:
        yield from _of_cart(event, space)
    for n, search in enumerate(case.searches):
        yield from _of_search(search, space, n)
    for n, click in enumerate(case.clicks):
        known = click.search is not None and case.searches
        search_id = f"{space}s{(click.search or 0) % len(case.searches)}" if known else f"{space}z{n}"
        yield from _of_click(click, search_id, space, n)
    for n, login in enumerate(case.logins):
        yield from _of_login(login, space, n)
    for post_event in case.post_events:
        yield from _of_post(post_event, space)
    for follow_event in case.follow_events:
        yield from _of_follow(follow_event, space)
    for saved in case.saved_searches:
        yield from _of_saved(saved, space)


def _of_order(order: Order, space: str, n: int) -> Iterator[Sent]:
    record = {
        "order_id": f"{space}o{n}",
        "buyer": {"customer": f"{space}c{order.customer}"},
        "product": f"{space}p{order.product}",
        "cents": 100 + n,
        "country": f"land{order.country}",
        "ordered_at": stamp(order.minute),
        "lines": None if order.lines is None else [_line(line, space) for line in order.lines],
        "labels": None if order.labels is None else dict(order.labels),
    }
    yield from _sent(order, "orders", record)


def _line(line: Line, space: str) -> dict[str, object]:
    """What is absent is null, or not there."""
    record: dict[str, object] = {"product": f"{space}p{line.product}", "price": line.price}
    if line.wishes is not None:
        note, minute = line.wishes
        record["wishes"] = {"note": note} | ({} if minute is None else {"at": stamp(minute)})
    return record


def _of_attempt(attempt: Attempt, order_id: str, space: str, n: int) -> Iterator[Sent]:
    record = {
        "payment_id": f"{space}y{n}",
        "order_id": order_id,
        "card": f"{space}k{attempt.card}",
        "outcome": "accepted" if attempt.accepted else "declined",
        "tried_at": stamp(attempt.minute),
    }
    yield from _sent(attempt, "payments", record)


def _of_cart(event: CartEvent, space: str) -> Iterator[Sent]:
    record = {
        "cart_id": f"{space}b{event.cart}",
        "version": event.version,
        "kind": event.kind,
        "product": None if event.kind == "ordered" else f"{space}p{event.product}",
        "quantity": None if event.kind == "ordered" else event.quantity,
        "happened_at": stamp(event.minute),
    }
    yield from _sent(event, "cart_events", record)


def _of_search(search: Search, space: str, n: int) -> Iterator[Sent]:
    record = {
        "search_id": f"{space}s{n}",
        "customer": f"{space}c0",
        "terms": f"words {n}",
        "searched_at": stamp(search.minute),
    }
    yield from _sent(search, "searches", record)


def _of_click(click: Click, search_id: str, space: str, n: int) -> Iterator[Sent]:
    record = {
        "click_id": f"{space}i{n}",
        "search_id": search_id,
        "product": f"{space}p0",
        "clicked_at": stamp(click.minute),
    }
    yield from _sent(click, "clicks", record)


def _of_login(login: Login, space: str, n: int) -> Iterator[Sent]:
    record = {
        "login_id": f"{space}l{n}",
        "customer": f"{space}c{login.customer}",
        "country": f"land{login.country}",
        "logged_in_at": stamp(login.minute),
    }
    yield from _sent(login, "logins", record)


def _of_post(event: PostEvent, space: str) -> Iterator[Sent]:
    record = {
        "post_id": f"{space}m{event.post}",
        "author": f"{space}a{event.author}",
        "kind": event.kind,
        "version": event.version,
        "product": None if event.product is None else f"{space}p{event.product}",
        "text": None if event.kind == "deleted" else " ".join(event.words),
        "happened_at": stamp(event.minute),
    }
    yield from _sent(event, "post_events", record)


def _of_follow(event: FollowEvent, space: str) -> Iterator[Sent]:
    record = {
        "follower": f"{space}f{event.follower}",
        "author": f"{space}a{event.author}",
        "kind": event.kind,
        "happened_at": stamp(event.minute),
    }
    yield from _sent(event, "follow_events", record)


def _of_saved(saved: SavedSearch, space: str) -> Iterator[Sent]:
    record = {
        "customer": f"{space}c0",
        "name": f"search {saved.search}",
        "query": saved.query,
        "saved_at": stamp(saved.minute),
    }
    value = None if saved.query is None else json.dumps(record).encode()
    first, keyed = saved.minute + saved.heard, Keyed(f"{space}q{saved.search}".encode(), value)
    for minute in (first, *(() if saved.sent_again is None else [first + saved.sent_again])):
        yield Sent(minute, "saved_searches", keyed)


def _sent(part: Part, topic: str, record: Mapping[str, object]) -> Iterator[Sent]:
    first = part.minute + part.heard
    yield sent(first, topic, record)
    if part.sent_again is not None:
        yield sent(first + part.sent_again, topic, record)
