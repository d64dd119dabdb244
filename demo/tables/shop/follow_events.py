"""Whom customers begin and cease to follow.

follower: the customer who follows
author: the customer who is followed
kind: followed or unfollowed
happened_at: when
"""

from twofold import Topic, one_of

TOPIC = Topic(
    schema={"follower": "string", "author": "string", "kind": "string", "happened_at": "timestamp"},
    event_time="happened_at",
    message_key="follower",
    dedup_keys=["follower", "author", "kind"],
    checks=[one_of("kind", ["followed", "unfollowed"])],
)
