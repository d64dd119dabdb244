"""Orders as the shop takes them."""

from __future__ import annotations

from tables import Topic, between

TOPIC = Topic(
    schema={
        "order_id": "string",
        "customer": "string",
        "product": "string",
        "cents": "int",
        "country": "string",
        "ordered_at": "timestamp",
    },
    event_time="ordered_at",
    message_key="order_id",
    dedup_keys=["order_id"],
    checks=[between("cents", 1, 10_000_000)],
)
