"""Posts of customers about products: new, edited and deleted.

post_id: id of the post
author: the customer who wrote it
kind: posted, edited or deleted
version: of the post, from 1
product: what the post is about
text: the post's words; null for a deletion
happened_at: when
"""

from twofold import Topic, between, one_of

TOPIC = Topic(
    schema={
        "post_id": "string",
        "author": "string",
        "kind": "string",
        "version": "int",
        "product": "string?",
        "text": "string?",
        "happened_at": "timestamp",
    },
    event_time="happened_at",
    message_key="post_id",
    dedup_keys=["post_id", "version", "kind"],
    checks=[one_of("kind", ["posted", "edited", "deleted"]), between("version", 1, None)],
)
