"""The table of a compacted topic is the same from its whole history and from what compaction has left."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.servers import wait_until
from tests.tables.declared import written
from twofold.batch.audit.completeness import certify
from twofold.batch.audit.table_audit import audit_topics
from twofold.batch.audit.topic_audit import compare_with_log
from twofold.batch.log_reader import Log
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.rewrite.replay import decode
from twofold.infra.errors import BadArgument
from twofold.infra.kafka import topic_admin
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.topic_specs import specs
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.spark]

TOPIC, TABLE = "market.prices", "market.current_prices"
FILES = {
    "market/prices.py": """
        '''Prices.'''
        from twofold import Topic, key

        TOPIC = Topic(
            schema={"item": key(), "at": "timestamp", "price": "int"},
            event_time="at",
            message_key="item",
            compacted=True,
            partitions=1,
        )
        """,
    "market/current_prices.py": """
        '''Prices as they are now.'''
        from twofold import latest_values, table


        @table(primary_key=["item"], recompute_by=["item"])
        def current_prices(prices):
            '''The newest price of each item.'''
            return latest_values(prices, key=["item"], columns=["price"])
        """,
}
HISTORY = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None), ("d", 5), ("c", 6), ("d", None), ("d", 7), ("a", 1)]
LATER = [("a", None), ("e", 8), ("c", 9)]
QUICK = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.0001", "delete.retention.ms": "0"}


def send(settings: Settings, prices: Iterable[tuple[str, int | None]]) -> None:
    """Prices in this order, all dated alike, so that nothing but the log orders them."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, acks="all")
    for item, price in prices:
        value = None if price is None else json.dumps({"at": "2026-01-01T00:00:00Z", "price": price}).encode()
        producer.send(TOPIC, value, key=item.encode()).get(10)
    producer.close()


def held(settings: Settings) -> list[int]:
    """The offsets at which the broker still has a record."""
    from kafka import KafkaConsumer, TopicPartition

    place = TopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers, enable_auto_commit=False)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end, found = consumer.end_offsets([place])[place], list[int]()
    while consumer.position(place) < end:
        found += [record.offset for record in consumer.poll(timeout_ms=500).get(place, [])]
    consumer.close()
    return found


def ingested(spark: SparkSession, settings: Settings, registry: Registry) -> World:
    world = World(spark, settings, domain="market", registry=registry)
    Ingest(spark, world.lake, registry, "market").start(available_now=True).awaitTermination()
    world.maintain([TABLE])
    return world


def prices(world: World) -> dict[str, int]:
    return {row["item"]: row["price"] for row in world.rows(TABLE).to_pylist()}


def test_a_table_is_the_same_from_what_compaction_has_left(log: Settings, spark: SparkSession, tmp_path: Path) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    registry = load(written(tmp_path / "declared", FILES))
    topic_admin.ensure_topics(log, specs(registry))
    with topic_admin.reach(log) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, QUICK)])
    send(log, HISTORY)
    whole = ingested(spark, log, registry)
    assert prices(whole) == {"a": 1, "c": 6, "d": 7}

    send(log, LATER)
    wait_until(lambda: len(held(log)) <= 6, timeout_s=120)
    assert topic_admin.offsets(log, [TOPIC])[TOPIC][0].latest == len(HISTORY) + len(LATER)
    whole = ingested(spark, log, registry)
    left = ingested(spark, replace(log, home=tmp_path / "new"), registry)

    assert prices(left) == prices(whole) == {"c": 9, "d": 7, "e": 8}
    assert left.lake.rows(TOPIC) < whole.lake.rows(TOPIC)
    topic, table = registry.topics[TOPIC], registry.find_table(TABLE)
    for world in (whole, left):
        platform = Platform(spark, world.lake, registry)
        assert [o.unexplained for o in world.reconcile([TABLE], verify=True)] == [0]
        assert [audited.faults for audited in audit_topics(platform, [table])] == [[]]
        assert compare_with_log(platform, topic, Log(platform, [TOPIC])).faults == []
        assert certify(world.lake, registry, table).faults == []
        with pytest.raises(BadArgument, match="is compacted"):
            decode(platform, topic, OffsetSelection())

    DeltaTable(left.lake.uri(TOPIC)).delete("_offset = 12")
    platform = Platform(spark, left.lake, registry)
    assert compare_with_log(platform, topic, Log(platform, [TOPIC])).differing == [(0, 0, 10_000)]
    assert certify(left.lake, registry, table).topics[0].partitions[0].missing == 1
