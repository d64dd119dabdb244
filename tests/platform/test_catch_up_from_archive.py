"""A stopped stream whose records left the broker misses nothing; lost records are one gap."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.platform.acknowledged_records import faults
from tests.servers import wait_until
from twofold.batch.audit.table_audit import audit_topics
from twofold.batch.log_reader import Log
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import run
from twofold.infra.archive.archive_catalog import open_archive
from twofold.infra.kafka import topic_admin
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.broker_retention import Retention, retention
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.streaming.query.deferred_query import DeferredQuery
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events import lost_offsets
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.kafka.topic_admin import PartitionOffsets

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.spark]

DOMAIN, TOPIC = "flights", "flights.departures"
FLIGHTS = load().restricted_to([DOMAIN])
BRIEF = {"segment.ms": "500", "local.retention.ms": "500", "file.delete.delay.ms": "0"}


def send(settings: Settings, day: int) -> None:
    """Send a day of flights, as fast as the broker takes them."""
    start = date(2013, 1, 1) + timedelta(days=day)
    run(settings, domain=DOMAIN, start=start, end=start + timedelta(days=1), imperfections=FaultInjection())


def keep_briefly(settings: Settings) -> None:
    """Let the broker give up its own copy of what is archived at once."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with topic_admin.reach(settings) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, BRIEF) for name in FLIGHTS.topics])


def delete_records(settings: Settings, before: dict[int, int]) -> None:
    from kafka import TopicPartition

    with topic_admin.reach(settings) as admin:
        admin.delete_records({TopicPartition(TOPIC, p): offset for p, offset in before.items()})


def reaches(settings: Settings) -> dict[int, PartitionOffsets]:
    return topic_admin.offsets(settings, [TOPIC])[TOPIC]


def ingest(spark: SparkSession, world: World) -> bool:
    """What a driver does that starts again, until all is in; whether it had to fill something first."""
    running = Ingest(spark, world.lake, world.registry, DOMAIN).start(available_now=True)
    running.awaitTermination()
    return isinstance(running, DeferredQuery)


def test_a_stream_that_fell_behind_misses_only_what_is_lost(
    spark: SparkSession, broker: Settings, log: Settings
) -> None:
    """The broker closes, archives and removes segments in its own time, which is tens of seconds."""
    log = replace(log, archive=broker.archive_uri)
    topics_alone = Registry(FLIGHTS.topics, {})
    world = World(spark, log, "flights", registry=topics_alone)
    topic = world.registry.topics[TOPIC]
    send(log, 0)
    assert not ingest(spark, world)
    keep_briefly(log)

    seen = read_ingested_offsets(world.lake, topic).ends
    time.sleep(0.6)  # a segment is closed by the first record that comes this long after its first
    send(log, 1)
    cut = {p: bounds.latest for p, bounds in reaches(log).items()}
    time.sleep(0.6)
    send(log, 2)
    wait_until(lambda: all(bounds.earliest_local > cut[p] for p, bounds in reaches(log).items()))
    assert kept(world, topic, seen).archive_bytes > 0
    assert kept(world, topic, seen).leaves_in_s == dict.fromkeys(seen, 0.0)
    delete_records(log, cut)
    wait_until(lambda: all(archive_begins(log, p) == offset for p, offset in cut.items()))

    # What is archived of this topic goes through Spark's workers; each such write costs seconds.
    few = sum(bounds.earliest_local - cut[p] for p, bounds in reaches(log).items()) - 1
    assert ingest(spark, World(spark, replace(log, small_rows=few), "flights", registry=topics_alone))
    assert any("Spark" in commit["engineInfo"] for commit in world.lake.open(TOPIC).history())
    assert kept(world, topic, read_ingested_offsets(world.lake, topic).ends).leaves_in_s == {}
    lost = lost_offsets.gaps(world.lake)
    assert {gap.partition: (gap.start, gap.end) for gap in lost} == {p: (seen[p], end) for p, end in cut.items()}
    assert faults(log) == {}

    tables = list(FLIGHTS.tables.values())
    platform = Platform(spark, world.lake, FLIGHTS)
    told = [fault for found in audit_topics(platform, tables) for fault in found.faults]
    assert len(told) == len(lost)
    assert all("are lost: the broker's log begins at" in fault for fault in told)
    lost_offsets.acknowledge(world.lake, TOPIC, "the test deleted them")
    assert [found.faults for found in audit_topics(platform, tables) if found.faults] == []

    # What was deleted with them, and had been ingested before, is not to be had again either.
    since = {p: (seen[p], end) for p, end in read_ingested_offsets(world.lake, topic).ends.items()}
    again = Log(Platform(spark, world.lake, world.registry), [TOPIC]).read(topic, since).count()
    assert again == sum(end - cut[p] for p, (_, end) in since.items()) > 0

    assert not ingest(spark, world)
    assert faults(log) == {}
    assert [(gap.partition, gap.start, gap.end) for gap in lost_offsets.gaps(world.lake)] == [
        (gap.partition, gap.start, gap.end) for gap in lost
    ]


def kept(world: World, topic: Topic, ingested: Mapping[int, int]) -> Retention:
    """What status tells of the topic's retention."""
    log, now = world.settings, datetime.now(UTC)
    return retention(log, {TOPIC: topic}, topic_admin.offsets(log, [TOPIC]), {TOPIC: ingested}, now)[TOPIC]


def archive_begins(settings: Settings, partition: int) -> int:
    """The first offset that the archive has of a partition; where it has nothing, that of the broker."""
    found = open_archive(settings, [TOPIC]).runs(TOPIC).get(partition)
    return found[0].start if found else reaches(settings)[partition].earliest
