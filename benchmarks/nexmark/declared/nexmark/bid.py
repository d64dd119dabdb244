"""Bids for auctions."""

from twofold import Topic, between

TOPIC = Topic(
    schema={
        "auction": "long",
        "bidder": "long",
        "price": "long",
        "channel": "string",
        "url": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
    event_time="date_time",
    append_time="appended_at",
    message_key="auction",
    dedup_keys=["auction", "bidder"],
    checks=[between("price", 1, None)],
)
