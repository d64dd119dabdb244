"""Persons who register."""

from twofold import Topic

TOPIC = Topic(
    schema={
        "id": "long",
        "name": "string",
        "email_address": "string",
        "credit_card": "string",
        "city": "string",
        "state": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
    event_time="date_time",
    message_key="id",
    dedup_keys=["id"],
)
