"""Pages that customers look at."""

from tables import Topic

TOPIC = Topic(
    schema={"view_id": "string", "customer": "string", "page": "string", "viewed_at": "timestamp"},
    event_time="viewed_at",
    message_key="customer",
    dedup_keys=["view_id"],
)
