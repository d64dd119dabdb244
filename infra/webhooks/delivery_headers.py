"""Headers of the records that webhooks become, and the columns with these. Declarations load this module."""

ID, RECEIVED, EVENT_TYPE = "webhook-id", "webhook-received-at", "x-github-event"
WEBHOOK_ID, RECEIVED_AT, TYPE = "webhook_id", "received_at", "event_type"
MOST_BYTES = 1_000_000
"""The longest body; encrypted it may be as long as its topic's `max_bytes`."""
