"""Whom customers begin and cease to follow."""

from tables import Topic, one_of

TOPIC = Topic(
    schema={"follower": "string", "author": "string", "kind": "string", "happened_at": "timestamp"},
    event_time="happened_at",
    message_key="follower",
    dedup_keys=["follower", "author", "kind"],
    checks=[one_of("kind", ["followed", "unfollowed"])],
)
