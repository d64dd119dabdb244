"""Markers and aborted records of transactions are no lost records: audits and certificates count them apart."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from batch.audit import audit_topics
from infra import topics
from infra.settings import Settings
from streaming.ingest import Ingest
from tables.completeness import Coverage, certify
from tables.registry import load
from tables.setup import Platform
from tests.worlds import World
from traffic.imperfections import Imperfections
from traffic.replay import messages

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
    day = messages(date(2013, 1, 1), date(2013, 1, 2), declared, Imperfections.none())
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
    assert topics.offsets(log, [TOPIC])[TOPIC][0].latest == committed + hidden
    world = World(spark, log)
    Ingest(spark, world.lake, world.registry, "flights").start(available_now=True).awaitTermination()
    world.maintain([TABLE])
    table = world.registry.find_table(TABLE)

    def coverage() -> Coverage:
        """What a certificate says of the last record of the day, which nobody asked the log for."""
        [topic] = certify(world.lake, world.registry, table).topics
        return topic.partitions[0]

    last = 1  # the marker behind the last record was not there to be read, or it was: Spark's frontier tells
    before = coverage()
    assert before.events == committed
    assert before.missing in (hidden - last, hidden)

    [audited] = audit_topics(Platform(spark, world.lake, world.registry), [table])

    assert audited.faults == []
    after = coverage()
    assert (after.missing, after.in_transactions, after.is_complete) == (0, before.missing, True)
