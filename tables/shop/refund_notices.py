"""Refunds as the payment provider reports them, by signed webhooks."""

from tables import between, from_webhook

TOPIC = from_webhook(
    scheme="standard",
    schema={"refund_id": "string", "payment_id": "string", "cents": "int", "refunded_at": "timestamp"},
    event_time="refunded_at",
    checks=[between("cents", 1, None)],
)
