"""Attempts to pay as the bank reports them."""

from __future__ import annotations

from tables import Topic, one_of

TOPIC = Topic(
    schema={
        "payment_id": "string",
        "order_id": "string",
        "card": "string",
        "outcome": "string",
        "tried_at": "timestamp",
    },
    event_time="tried_at",
    key="payment_id",
    identity=["payment_id"],
    rules=[one_of("outcome", ["accepted", "declined"])],
)
