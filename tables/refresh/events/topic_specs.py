"""Derives the desired state of topics on the broker from their declarations."""

from __future__ import annotations

from itertools import chain
from pkgutil import resolve_name

from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.topic import Topic

TOMBSTONES_MS = 180 * 24 * 3_600_000
"""How long the broker keeps a tombstone of a compacted topic, at least."""


def specs(registry: Registry, domain: str | None = None) -> list[TopicSpec]:
    """Returns the specifications of the topics of one domain or of all, and of what their origins need."""
    topics = [topic for topic in registry.topics.values() if domain in (None, topic.domain)]
    more = (resolve_name(topic.origin.topics)(topic) for topic in topics if topic.origin.topics)
    return [*map(spec, topics), *chain.from_iterable(more)]


def spec(topic: Topic) -> TopicSpec:
    """Returns partitions and configuration: kept forever or compacted; timestamps are set by the broker."""
    configs = {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": str(topic.segment_bytes),
        "max.message.bytes": str(topic.largest_record),
        **topic.origin.configs,
    }
    if topic.compacted:
        # A tombstone that is removed before a stopped stream has read it would leave its key for ever.
        configs |= {"cleanup.policy": "compact", "delete.retention.ms": str(TOMBSTONES_MS)}
    if topic.tiered:
        configs |= {"remote.storage.enable": "true", "local.retention.ms": str(topic.local_retention_ms)}
    return TopicSpec(name=topic.full_name, partitions=topic.partitions, configs=configs)
