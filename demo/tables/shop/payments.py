"""Attempts to pay as the bank reports them.

payment_id: id of the attempt
order_id: the order that is paid
card: token of the card
outcome: accepted or declined
tried_at: when the bank decided
"""

from twofold import Topic, one_of

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
