"""Random cases of the shop: a few orders and attempts to pay, near enough to each other to meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from string import ascii_uppercase

from hypothesis import strategies as st

from tests.fuzz.fuzz_cases import CLOSING_MIN, END_MIN, TICK_MIN, Sent, scheduled, sent, stamp


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order; times are minutes, as those of a `Flight`, names are numbers within the case."""

    customer: int
    product: int
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to pay an order by its number, modulo their count; None: an order that nobody knows."""

    order: int | None
    card: int
    accepted: bool
    minute: int
    heard: int
    sent_again: int | None


@dataclass(frozen=True)
class Case:
    """What has nothing to do with other cases."""

    orders: tuple[Order, ...]
    attempts: tuple[Attempt, ...] = ()

    def __len__(self) -> int:
        return len(self.orders) + len(self.attempts)

    def smaller(self) -> Iterator[Case]:
        """The case without one of its parts; an attempt goes before the order that it is for can change."""
        for n in range(len(self.attempts)):
            yield Case(self.orders, self.attempts[:n] + self.attempts[n + 1 :])
        if self.attempts:
            yield Case(self.orders)
        for n in range(len(self.orders)):
            yield Case(self.orders[:n] + self.orders[n + 1 :], self.attempts)


heard = st.one_of(st.integers(0, 3), st.integers(-20, 130), st.integers(100, 3_000))
sent_again = st.one_of(st.none(), st.none(), st.integers(0, 30), st.integers(100, 3_000))
number = st.sampled_from([0, 0, 0, 1])
orders = st.builds(
    Order,
    customer=number,
    product=number,
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
cases = st.builds(
    lambda some, others, guess: Case(tuple(some), (*others, *guess)),
    st.lists(orders, min_size=2, max_size=5),
    st.lists(attempts, min_size=2, max_size=6),
    st.one_of(st.just(()), guesses),
)
schedules = scheduled(
    st.one_of(st.integers(20, 150), st.integers(150, 3_000)),
    st.builds(lambda first, more: more | {first}, st.integers(0, 1), st.frozensets(st.integers(2, 4), max_size=1)),
)


def log_of(world: Sequence[Case]) -> list[Sent]:
    """Every record in the order of the log, with a clock that keeps the shop's time going."""
    records = [_records(case, _space(nth)) for nth, case in enumerate(world)]
    return sorted(chain(_clock(), *records), key=lambda record: record.minute)


def owners(world: Sequence[Case]) -> dict[str, int]:
    """Every name of a case -> the number of the case."""
    kinds = {"o": 5, "x": 10, "y": 10, "c": 2, "p": 2, "k": 2}
    return {
        f"{_space(nth)}{kind}{n}": nth for nth in range(len(world)) for kind, most in kinds.items() for n in range(most)
    }


def _space(nth: int) -> str:
    first, second = divmod(nth, 26)
    return ascii_uppercase[first] + ascii_uppercase[second]


def _clock() -> Iterator[Sent]:
    for minute in [*range(0, END_MIN, TICK_MIN), *range(CLOSING_MIN, CLOSING_MIN + 300, TICK_MIN)]:
        order = Order(customer=0, product=0, minute=minute, heard=0, sent_again=None)
        attempt = Attempt(order=0, card=0, accepted=True, minute=minute, heard=0, sent_again=None)
        yield from _of_order(order, "ZZ", minute)
        yield from _of_attempt(attempt, f"ZZo{minute}", "ZZ", minute)


def _records(case: Case, space: str) -> Iterator[Sent]:
    for n, order in enumerate(case.orders):
        yield from _of_order(order, space, n)
    for n, attempt in enumerate(case.attempts):
        known = attempt.order is not None and case.orders
        order_id = f"{space}o{(attempt.order or 0) % len(case.orders)}" if known else f"{space}x{n}"
        yield from _of_attempt(attempt, order_id, space, n)


def _of_order(order: Order, space: str, n: int) -> Iterator[Sent]:
    record = {
        "order_id": f"{space}o{n}",
        "customer": f"{space}c{order.customer}",
        "product": f"{space}p{order.product}",
        "cents": 100 + n,
        "ordered_at": stamp(order.minute),
    }
    yield from _sent(order, "orders", record)


def _of_attempt(attempt: Attempt, order_id: str, space: str, n: int) -> Iterator[Sent]:
    record = {
        "payment_id": f"{space}y{n}",
        "order_id": order_id,
        "card": f"{space}k{attempt.card}",
        "outcome": "accepted" if attempt.accepted else "declined",
        "tried_at": stamp(attempt.minute),
    }
    yield from _sent(attempt, "payments", record)


def _sent(part: Order | Attempt, topic: str, record: Mapping[str, object]) -> Iterator[Sent]:
    first = part.minute + part.heard
    yield sent(first, topic, record)
    if part.sent_again is not None:
        yield sent(first + part.sent_again, topic, record)
