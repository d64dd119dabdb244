"""Tables of the shop: rows in, rows out, and that the stream and the batch say the same."""

import json
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def payment(number, at, outcome="accepted"):
    return {"payment_id": f"p{number}", "order_id": "o1", "outcome": outcome, "tried_at": at.isoformat()}


def test_an_order_is_paid_within_an_hour(assert_rows):
    hour = NOON + timedelta(hours=1)
    assert_rows(
        "shop.paid_orders",
        orders=[{"order_id": "o1", "cents": 1_250, "ordered_at": NOON}],
        payments=[
            payment(1, NOON + timedelta(minutes=10), outcome="declined"),
            payment(2, hour),
            payment(3, hour + timedelta(minutes=1)),
        ],
        gives=[{"payment_id": "p2", "order_id": "o1", "cents": 1_250, "paid_at": hour, "closes_at": hour}],
    )


def test_stream_and_batch_agree_on_paid_orders(assert_parity):
    """Sends an order every ten minutes; every fifth payment arrives hours late, and the last order is sent again."""
    orders, payments = [], []
    for number in range(80):
        at = NOON + timedelta(minutes=10 * number)
        late = 30 if number % 5 == 0 else 0
        sent = {"order_id": f"o{number}", "buyer": {"customer": "c1"}, "product": "tea", "cents": 250, "country": "NL"}
        orders.append({**sent, "ordered_at": at.isoformat()})
        paid = {**payment(number, at + timedelta(minutes=5)), "order_id": f"o{number}", "card": "k1"}
        payments.append((number + late, paid))
    in_time = [paid for _, paid in sorted(payments, key=lambda sent: sent[0])]
    world = assert_parity(
        "shop.paid_orders",
        records={
            "shop.orders": [json.dumps(record).encode() for record in [*orders, orders[-1]]],
            "shop.payments": [json.dumps(record).encode() for record in in_time],
        },
    )
    assert len(world.rows("shop.paid_orders")) == 80
