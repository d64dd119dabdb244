"""Members of a consumer group on a real broker."""

from __future__ import annotations

import time

import pytest

from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.group_member import GroupMember, joined
from twofold.infra.kafka.record_producer import producing
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.platform

TOPIC, GROUP = "given.back", "members"


def offsets_read(member: GroupMember, timeout_s: float = 60) -> list[int]:
    """The offsets of the first poll that reads something."""
    deadline = time.monotonic() + timeout_s
    while not (read := [record.offset for record in member.poll(0.2, held=[])]) and time.monotonic() < deadline:
        pass
    return read


def test_a_partition_that_is_lost_while_held_is_read_when_given_back(broker: Settings) -> None:
    topic_admin.ensure_topics(broker, [TopicSpec(name=TOPIC, partitions=1)])
    with producing(broker, outage_s=60) as producer:
        producer.send(TOPIC, b"one")
    with joined(broker, GROUP, TOPIC) as first:
        assert offsets_read(first) == [0]
        assert first.position(0) is None
        first.poll(0.1, held=None)
        with joined(broker, GROUP, TOPIC) as second:
            deadline = time.monotonic() + 60
            while not first.lost() and time.monotonic() < deadline:
                second.poll(0.1, held=None)
                first.poll(0.1, held=None)

        assert offsets_read(first) == [0]
        assert first.commit({0: (1, "a note")})
        assert first.position(0) == (1, "a note")
