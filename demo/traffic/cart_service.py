"""The cart service of the shop: validates each command against the cart, and turns accepted ones into events."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from twofold.demo.traffic.traffic_record import TrafficRecord


class CartEvent(TrafficRecord, frozen=True, kw_only=True, rename={"at": "happened_at"}):
    """A record of `shop.cart_events`."""

    topic = "shop.cart_events"
    keyed_by = "cart_id"
    cart_id: str
    version: int
    kind: Literal["added", "removed", "ordered"]
    product: str | None
    quantity: int | None
    at: datetime


class Command(msgspec.Struct, frozen=True):
    """A customer's command to a cart; product and quantity are those of the line to add or remove."""

    kind: Literal["add", "remove", "order"]
    product: str | None = None
    quantity: int = 0


class Cart:
    """The state of one cart; only its own events change it.

    Use one caller at a time: the check of a command and its event are one step, so that no version repeats.
    """

    def __init__(self, cart_id: str) -> None:
        self._id = cart_id
        self._version = 0
        self._is_ordered = False
        self._quantities: dict[str | None, int] = {}

    def quantity(self, product: str) -> int:
        """Returns the quantity of a product in the cart."""
        return self._quantities.get(product, 0)

    def refusal(self, command: Command) -> str | None:
        """Explains why the cart in its current state refuses a command; None if it accepts it."""
        if self._is_ordered:
            return "the cart is ordered"
        if command.kind == "order":
            return None if any(self._quantities.values()) else "the cart is empty"
        if command.product is None or command.quantity < 1:
            return "no product or no quantity is named"
        held = self.quantity(command.product)
        if command.kind == "remove" and command.quantity > held:
            return f"{held} of {command.product} are in the cart, not {command.quantity}"
        return None

    def handle(self, command: Command, at: datetime) -> CartEvent | None:
        """Turns a command into an event with the cart's next version; None, without an effect, if it is refused."""
        if self.refusal(command):
            return None
        self._version += 1
        if command.kind == "order":
            self._is_ordered = True
            return CartEvent(
                cart_id=self._id, version=self._version, kind="ordered", product=None, quantity=None, at=at
            )
        sign = 1 if command.kind == "add" else -1
        self._quantities[command.product] = self._quantities.get(command.product, 0) + sign * command.quantity
        return CartEvent(
            cart_id=self._id,
            version=self._version,
            kind="added" if command.kind == "add" else "removed",
            product=command.product,
            quantity=command.quantity,
            at=at,
        )
