"""Derives the desired state of topics on the broker from their declarations."""

from __future__ import annotations

from twofold.infra.capture.captured_table import INTAKE
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.sources.captured_topic import is_relayed, largest_captured
from twofold.tables.declare.sources.webhook_topic import WebhookTopic
from twofold.tables.declare.topic import Topic

TOMBSTONES_MS = 180 * 24 * 3_600_000
"""How long the broker keeps a tombstone of a compacted topic, at least."""


INTAKE_MS = 7 * 24 * 3_600_000
"""How long an intake keeps what no relay takes; what one has taken is removed at once."""
SEGMENT_MS = 60_000
"""How long a segment of an intake takes records: only whole ones leave the disk."""


def specs(registry: Registry, domain: str | None = None) -> list[TopicSpec]:
    """Returns one specification per topic and intake, of one domain or of all."""
    topics = [topic for topic in registry.topics.values() if domain in (None, topic.domain)]
    return [*map(spec, topics), *(intake_spec(topic) for topic in topics if is_relayed(topic))]


def intake_spec(topic: Topic) -> TopicSpec:
    """Returns the specification of the topic in which captured records wait in the clear: no archive keeps them."""
    configs = {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "retention.ms": str(INTAKE_MS),
        "segment.ms": str(SEGMENT_MS),
        "file.delete.delay.ms": "1000",
        "max.message.bytes": str(largest_captured(topic)),
    }
    return TopicSpec(name=f"{topic.full_name}{INTAKE}", partitions=1, configs=configs)


def spec(topic: Topic) -> TopicSpec:
    """Returns partitions and configuration: kept forever or compacted; timestamps are set by the broker."""
    configs = {
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": str(topic.segment_bytes),
        "max.message.bytes": str(topic.largest_record),
    }
    if isinstance(topic, WebhookTopic):
        # Who got an answer forgets the delivery: there is one broker, and a loss of power empties its page cache.
        configs["flush.messages"] = "1"
    if topic.compacted:
        # A tombstone that is removed before a stopped stream has read it would leave its key for ever.
        configs |= {"cleanup.policy": "compact", "delete.retention.ms": str(TOMBSTONES_MS)}
    if topic.tiered:
        configs |= {"remote.storage.enable": "true", "local.retention.ms": str(topic.local_retention_ms)}
    return TopicSpec(name=topic.full_name, partitions=topic.partitions, configs=configs)
