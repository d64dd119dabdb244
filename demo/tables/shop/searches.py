"""The searches of customers.

search_id: id of the search
customer: who searched
terms: the words
searched_at: when
"""

from twofold import Topic

TOPIC = Topic(
    schema={"search_id": "string", "customer": "string", "terms": "string", "searched_at": "timestamp"},
    event_time="searched_at",
    message_key="search_id",
    dedup_keys=["search_id"],
)
