"""Markers and aborted records of transactions are no lost records: audits and certificates count them apart."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from twofold.batch.audit.completeness import Coverage, certify
from twofold.batch.audit.table_audit import audit_topics
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import messages
from twofold.infra.kafka import topic_admin
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.platform, pytest.mark.spark]

TOPIC, TABLE = "flights.weather", "flights.airport_weather"
TRANSACTIONS = [(3, True), (2, False), (1, True), (4, True), (5, False), (1, True)]
"""How many records each holds, and whether it is committed."""


def send(settings: Settings) -> None:
    """Observations of the weather of one day, in these transactions."""
    from kafka import KafkaProducer

    declared = {topic.full_name: topic for topic in load().domain_topics("flights")}
    day = messages("flights", date(2013, 1, 1), date(2013, 1, 2), declared, FaultInjection.none())
    observations = (message.value for message in day if message.topic == TOPIC)
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, transactional_id="observatory")
    producer.init_transactions()
    for records, is_committed in TRANSACTIONS:
        producer.begin_transaction()
        for _ in range(records):
            producer.send(TOPIC, next(observations), key=b"EWR", partition=0)
        producer.flush()
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    producer.close()


def test_a_topic_with_transactions_is_complete(spark: SparkSession, log: Settings) -> None:
    committed = sum(records for records, is_committed in TRANSACTIONS if is_committed)
    hidden = len(TRANSACTIONS) + sum(records for records, is_committed in TRANSACTIONS if not is_committed)
    send(log)
    assert topic_admin.offsets(log, [TOPIC])[TOPIC][0].latest == committed + hidden
    world = World(spark, log, "flights")
    Ingest(spark, world.lake, world.registry, "flights").start(available_now=True).awaitTermination()
    world.maintain([TABLE])
    table = world.registry.find_table(TABLE)

    def certified() -> Coverage:
        [topic] = certify(world.lake, world.registry, table).topics
        return topic.partitions[0]

    found = certified()
    assert (found.events, found.missing, found.in_transactions) == (committed, hidden, 0)

    [audited] = audit_topics(Platform(spark, world.lake, world.registry), [table])

    assert audited.faults == []
    found = certified()
    assert (found.missing, found.in_transactions, found.is_complete) == (0, hidden, True)
