"""Asks the broker which segments it archived, its only request of an archive read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive, own_errors
from twofold.infra.errors import BrokerUnreachable
from twofold.infra.kafka.topic_admin import reach
from twofold.infra.project.settings import Settings
from twofold_archive.format.segment_metadata import TOPIC, Record, parse
from twofold_archive.format.segment_store import Store
from twofold_archive.segment_manifest import archived, copied_segments

TIMEOUT_S = 30.0


def open_archive(settings: Settings, topics: Sequence[str]) -> PlatformArchive:
    """Opens the archive of these topics as of now; a topic that does not exist or is not tiered is empty in it.

    Raises:
        BrokerUnreachable: retryable.
        TwofoldError: the broker writes metadata that this version cannot read.
    """
    with reach(settings) as client:
        described = client.describe_topics([*topics, TOPIC])
    ids = {topic["name"]: _uuid(topic["topic_id"]) for topic in described if topic["error_code"] == 0}
    records = _records(settings) if TOPIC in ids else iter(())
    with own_errors():
        partitions = archived(copied_segments(records), {name: ids[name] for name in topics if name in ids})
    return PlatformArchive(Store(ArchiveFiles(settings.archive_uri)), partitions)


def _uuid(identity: object) -> UUID:
    return identity if isinstance(identity, UUID) else UUID(str(identity))


def _records(settings: Settings) -> Iterator[Record]:
    """Yields the broker's metadata records about archived segments up to now."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers.split(","), enable_auto_commit=False)
    try:
        partitions = [TopicPartition(TOPIC, number) for number in sorted(consumer.partitions_for_topic(TOPIC) or ())]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        deadline = time.monotonic() + TIMEOUT_S
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"The broker at {settings.bootstrap_servers} did not give all of {TOPIC} within {TIMEOUT_S:.0f} s.",
                    hint="Try again; the log broker.log says how it does.",
                )
            for batch in consumer.poll(timeout_ms=500).values():
                for record in batch:
                    if record.value is not None:
                        yield parse(record.value)
    finally:
        consumer.close()
