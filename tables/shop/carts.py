"""Carts as the fold of their events, one row after each: event sourcing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from tables import RECORD, DataFrame, Event, Match, expression, find_matches, one_of, table


@table(
    primary_key=["cart_id", "version"],
    event_time="valid_from",
    recompute_by=["cart_id"],
    lineage_columns=["record"],
    checks=[one_of("state", ["open", "ordered"]), expression("missing >= 0")],
)
def carts(cart_events: DataFrame) -> DataFrame:
    """One row per event of a cart, with what the cart was from then on.

    version: the event's number within its cart, from 1; of two events with one number the first in the log counts
    state: open, or ordered
    lines: products with their quantities, by product
    missing: events with lower numbers that have not arrived; above 0 the row is not what the cart was
    valid_from: time of the event
    valid_to: time of the next event; null for the newest
    record: the log record of the event
    """
    return find_matches(
        cart_events,
        key=["cart_id"],
        order=["version", "record"],
        find=fold,
        returns="cart_id string, version int, state string, lines array<struct<product: string, quantity: int>>, "
        f"missing int, valid_from timestamp, valid_to timestamp, record {RECORD}",
    )


def fold(events: Sequence[Event]) -> Iterator[Match]:
    """The states of one cart, in the order of its versions; what was ordered changes no more."""
    firsts = [next(same) for _, same in groupby(events, itemgetter("version"))]
    quantities: dict[str, int] = {}
    state = "open"
    for number, event in enumerate(firsts):
        if event["kind"] == "ordered":
            state = "ordered"
        elif state == "open" and event["product"] is not None:
            change = (event["quantity"] or 0) * (1 if event["kind"] == "added" else -1)
            quantities[event["product"]] = max(0, quantities.get(event["product"], 0) + change)
        yield {
            "cart_id": event["cart_id"],
            "version": event["version"],
            "state": state,
            "lines": [{"product": p, "quantity": quantity} for p, quantity in sorted(quantities.items()) if quantity],
            "missing": event["version"] - 1 - number,
            "valid_from": event["happened_at"],
            "valid_to": firsts[number + 1]["happened_at"] if number + 1 < len(firsts) else None,
            "record": event["record"],
        }
