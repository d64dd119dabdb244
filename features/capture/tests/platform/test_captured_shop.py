"""The shop of the demo: copies of its database, histories and joins, from its programs to its tables."""

from __future__ import annotations

import contextlib
from datetime import date
from typing import TYPE_CHECKING

import msgspec
import pytest
from kafka import KafkaProducer

from tests.servers import wait_until
from tests.support.captured_bank import Bank, relaying
from twofold.demo.traffic import shop_database, shop_source
from twofold.demo.traffic.expected import expected_tables
from twofold.demo.traffic.table_diff import compare
from twofold.features.capture import debezium_connector
from twofold.features.capture.captured_topic import captures
from twofold.infra.kafka.topic_admin import ensure_topics
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.topic_specs import specs
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.prove
@pytest.mark.platform
@pytest.mark.timeout(1_200)
def test_the_copies_of_a_shop_equal_its_database_and_its_history(bank: Bank, spark: SparkSession) -> None:
    """Two days of the shop's programs; both captures and the streams of four tables are started: up to a minute."""
    settings, declared = bank.settings, load()
    viewed = declared.topics["shop.page_views"]
    topics = {name: topic for name, topic in declared.topics.items() if topic.domain == "shop" and topic.captures}
    topics[viewed.full_name] = viewed
    tables = {name: t for name, t in declared.tables.items() if declared.above(t).topics.keys() <= topics.keys()}
    shop = Registry(topics, tables)
    names = ("customers", "customer_history", "shipments", "shipped_to", "viewed_from")
    assert set(tables) == {f"shop.{name}" for name in names}
    days = date(2026, 3, 2), date(2026, 3, 4)
    ensure_topics(settings, specs(shop))
    shop_database.create_tables(settings)
    for capture in captures(shop):
        debezium_connector.ensure(settings, capture)
        debezium_connector.wait_snapshot(settings, capture, 60)
    with shop_database.connected(settings) as connection:
        for transaction in shop_database.transactions(*days):
            shop_database.commit(connection, transaction)
    views = [r for _, day in shop_source.records(*days) for r in day if isinstance(r, shop_source.PageView)]
    with contextlib.closing(KafkaProducer(bootstrap_servers=settings.bootstrap_servers)) as producer:
        for view in views:
            producer.send(view.topic, key=view.key.encode(), value=msgspec.json.encode(view))
    world = World(spark, settings, domain="shop", registry=shop)

    def is_copied() -> bool:
        Ingest(world.spark, world.lake, world.registry, "shop").start(available_now=True).awaitTermination()
        world.maintain(world.all_tables)
        return all(
            world.rows(f"shop.{name}").num_rows == len(shop_database.rows(settings, name, "true"))
            and compare(expected_tables.expected(f"shop.{name}", *days), world.rows(f"shop.{name}"), key).equal
            for name, key in (("customers", ["customer"]), ("shipments", ["shipment_id"]))
        )

    with relaying(bank.settings, "twofold.features.persons.relay", "shop"):
        wait_until(is_copied)
    for name, key in (("shop.shipped_to", ["shipment_id"]), ("shop.viewed_from", ["view_id"])):
        joined = compare(expected_tables.expected(name, *days), world.rows(name), key)
        assert joined.equal, joined.examples.to_pylist()
        assert joined.rows > 200
    changes = [change for t in shop_database.transactions(*days) for change in t.changes]
    streets = [(c.row["customer"], c.row["street"]) for c in changes if c.table == "customers" and "street" in c.row]
    history = world.rows("shop.customer_history").select(["customer", "street"]).to_pylist()
    # A login, which changes another column, begins no row; no customer of these days moves to where he is.
    assert sorted((row["customer"], row["street"]) for row in history) == sorted(streets)
