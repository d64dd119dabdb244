"""Clicks on what a search found."""

from tables import Topic

TOPIC = Topic(
    schema={"click_id": "string", "search_id": "string", "product": "string", "clicked_at": "timestamp"},
    event_time="clicked_at",
    message_key="search_id",
    dedup_keys=["click_id"],
)
