"""Attempts to pay as the bank reports them."""

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
    message_key="payment_id",
    dedup_keys=["payment_id"],
    checks=[one_of("outcome", ["accepted", "declined"])],
)
