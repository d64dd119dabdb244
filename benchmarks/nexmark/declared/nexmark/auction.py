"""Auctions that begin."""

from twofold import Topic

TOPIC = Topic(
    schema={
        "id": "long",
        "item_name": "string",
        "description": "string",
        "initial_bid": "long",
        "reserve": "long",
        "expires": "timestamp",
        "seller": "long",
        "category": "long",
        "date_time": "timestamp",
        "extra": "string",
    },
    event_time="date_time",
    message_key="id",
    dedup_keys=["id"],
)
