"""Carts as the fold of their events, one row after each: event sourcing."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from twofold import RECORD, DataFrame, Event, Match, expression, find_matches, one_of, table


@table(
    primary_key=["cart_id", "version"],
    event_time="valid_from",
    lineage_columns=["record"],
    checks=[one_of("state", ["open", "ordered"]), expression("fault IS NULL")],
)
def carts(cart_events: DataFrame) -> DataFrame:
    """One row per event of a cart, with what the cart was from then on.

    version: the event's number within its cart, from 1; of two events with one number the first in the log counts
    state: open, or ordered
    lines: products with their quantities, by product
    fault: the first event up to this one that is missing, there twice or against the cart's state; null: none is
    valid_from: time of the event
    valid_to: time of the next event; null for the newest
    record: the log record of the event
    cart_id: id of the cart
    """
    return find_matches(
        cart_events,
        key=["cart_id"],
        order=["version", "record"],
        find=fold,
        returns="cart_id string, version int, state string, lines array<struct<product: string, quantity: int>>, "
        f"fault string, valid_from timestamp, valid_to timestamp, record {RECORD}",
    )


def fold(events: Sequence[Event]) -> Iterator[Match]:
    """The states of one cart, in the order of its versions; what was ordered changes no more."""
    versions = [list(same) for _, same in groupby(events, itemgetter("version"))]
    quantities: dict[str, int] = {}
    state, fault, last = "open", None, 0
    for number, same in enumerate(versions):
        event = same[0]
        fault = fault or find_fault(same, last, state, quantities)
        last = event["version"]
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
            "fault": fault,
            "valid_from": event["happened_at"],
            "valid_to": versions[number + 1][0]["happened_at"] if number + 1 < len(versions) else None,
            "record": event["record"],
        }


def find_fault(same: Sequence[Event], last: int, state: str, quantities: Mapping[str, int]) -> str | None:
    """Say why the events of one version cannot be what the service decided after version `last`."""
    event = same[0]
    version = f"version {event['version']}"
    if event["version"] != last + 1:
        return f"version {last + 1} is missing"
    if len({other["happened_at"] for other in same}) > 1:
        return f"{version} is there twice"
    if state == "ordered":
        return f"{version} comes after the order"
    if event["kind"] == "ordered":
        return None if any(quantities.values()) else f"{version} orders nothing"
    if event["kind"] == "removed" and (event["quantity"] or 0) > quantities.get(event["product"], 0):
        return f"{version} removes more than there is"
    return None
