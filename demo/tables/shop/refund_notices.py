"""Refunds as the payment provider reports them, by signed webhooks.

refund_id: id of the refund
payment_id: the payment that is given back
cents: amount, euro cents
refunded_at: when the provider gave it back
"""

from twofold import between, from_webhook

TOPIC = from_webhook(
    scheme="standard",
    schema={"refund_id": "string", "payment_id": "string", "cents": "int", "refunded_at": "timestamp"},
    event_time="refunded_at",
    checks=[between("cents", 1, None)],
)
