"""A command that does not fit the cart's state becomes no event, and takes no version."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from twofold.demo.traffic.cart_service import Cart, CartEvent, Command

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
ADD, REMOVE, ORDER = Command("add", "cup", 2), Command("remove", "cup", 2), Command("order")


def events(*commands: Command) -> list[CartEvent]:
    cart = Cart("b1")
    return [event for command in commands if (event := cart.handle(command, AT))]


@pytest.mark.parametrize(
    ("before", "command", "reason"),
    [
        ([], ORDER, "the cart is empty"),
        ([ADD, REMOVE], ORDER, "the cart is empty"),
        ([ADD, ORDER], ADD, "the cart is ordered"),
        ([ADD, ORDER], ORDER, "the cart is ordered"),
        ([], REMOVE, "0 of cup are in the cart, not 2"),
        ([ADD], Command("remove", "cup", 3), "2 of cup are in the cart, not 3"),
        ([ADD], Command("remove", "lamp", 1), "0 of lamp are in the cart, not 1"),
        ([], Command("add", "cup", 0), "no product or no quantity is named"),
        ([], Command("add", None, 1), "no product or no quantity is named"),
    ],
)
def test_a_command_that_does_not_fit_the_cart_becomes_no_event(
    before: list[Command], command: Command, reason: str
) -> None:
    cart = Cart("b1")
    for earlier in before:
        assert cart.handle(earlier, AT)
    assert cart.refusal(command) == reason
    assert cart.handle(command, AT) is None


def test_a_refused_command_takes_no_version() -> None:
    found = events(ORDER, ADD, Command("remove", "cup", 3), REMOVE, ORDER, ADD, ORDER, ADD)
    assert [(event.version, event.kind) for event in found] == [
        (1, "added"),
        (2, "removed"),
        (3, "added"),
        (4, "ordered"),
    ]


def test_an_event_says_what_its_command_asked_for() -> None:
    added, ordered = events(ADD, ORDER)
    assert added == CartEvent(cart_id="b1", version=1, kind="added", product="cup", quantity=2, at=AT)
    assert ordered == CartEvent(cart_id="b1", version=2, kind="ordered", product=None, quantity=None, at=AT)
