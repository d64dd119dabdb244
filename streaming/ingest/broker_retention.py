"""Time left until the broker deletes records that a stopped stream has not ingested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from twofold.infra.kafka.topic_admin import appended_ms

if TYPE_CHECKING:
    from twofold.infra.kafka.topic_admin import PartitionOffsets
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.topic import Topic

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """The retention of one topic.

    Attributes:
        archive_bytes: size of its archived segments, without their indexes.
        leaves_in_s: partition -> seconds until the broker may delete its local copy of the oldest record that was not
            ingested yet; 0 after that. Partitions without such records are left out, and so are all partitions of
            topics without an archive, whose records the broker keeps.
    """

    archive_bytes: int
    leaves_in_s: Mapping[int, float] = field(default_factory=dict)


def retention(
    settings: Settings,
    topics: Mapping[str, Topic],
    on_broker: Mapping[str, Mapping[int, PartitionOffsets]],
    ingested: Offsets,
    now: datetime,
) -> dict[str, Retention]:
    """Computes the retention of each topic; topics that the broker does not have are left out.

    Args:
        ingested: topic -> partition -> the first offset that was not ingested yet.

    Raises:
        BrokerUnreachable: retryable.
    """
    from twofold.infra.archive.archive_catalog import open_archive

    waiting = oldest_waiting({name: on_broker[name] for name in topics if name in on_broker}, ingested)
    tiered = {name: offsets for name, offsets in waiting.items() if topics[name].tiered}
    at_hand = {
        name: {p: offset for p, offset in offsets.items() if offset >= on_broker[name][p].earliest_local}
        for name, offsets in tiered.items()
    }
    appended = appended_ms(settings, at_hand)
    archive = open_archive(settings, list(waiting))
    return {
        name: Retention(
            archive_bytes=archive.size(name),
            leaves_in_s={
                p: leaves_in_s(appended.get(name, {}).get(p), topics[name].local_retention_ms, now)
                for p in tiered.get(name, {})
                if p not in at_hand[name] or p in appended.get(name, {})
            },
        )
        for name in waiting
    }


def oldest_waiting(
    on_broker: Mapping[str, Mapping[int, PartitionOffsets]], ingested: Offsets
) -> dict[str, dict[int, int]]:
    """Returns by topic and partition the offset of the oldest record that was not ingested yet, if there is one."""
    return {
        name: {
            p: ingested.get(name, {}).get(p, bounds.earliest)
            for p, bounds in partitions.items()
            if ingested.get(name, {}).get(p, bounds.earliest) < bounds.latest
        }
        for name, partitions in on_broker.items()
    }


def leaves_in_s(appended_ms: int | None, local_retention_ms: int, now: datetime) -> float:
    """Computes the seconds until a record may leave the broker's local log.

    Args:
        appended_ms: when the broker appended it, epoch milliseconds; None: it has left.
    """
    if appended_ms is None:
        return 0.0
    return max(0.0, (appended_ms + local_retention_ms) / 1_000 - now.timestamp())
