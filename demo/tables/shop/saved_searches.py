"""Searches for posts that customers save under a name; a record without a value removes one.

search_id: id of the saved search
customer: who saved it
name: under which it was saved
query: words and conditions that a post must meet
saved_at: when
"""

from twofold import Topic, key

TOPIC = Topic(
    schema={
        "search_id": key(),
        "customer": "string",
        "name": "string",
        "query": "string",
        "saved_at": "timestamp",
    },
    event_time="saved_at",
    message_key="search_id",
    compacted=True,
)
