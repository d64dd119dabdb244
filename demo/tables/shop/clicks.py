"""Clicks on what a search found.

click_id: id of the click
search_id: the search whose result was clicked
product: the result
clicked_at: when
"""

from twofold import Topic

TOPIC = Topic(
    schema={"click_id": "string", "search_id": "string", "product": "string", "clicked_at": "timestamp"},
    event_time="clicked_at",
    message_key="search_id",
    dedup_keys=["click_id"],
)
