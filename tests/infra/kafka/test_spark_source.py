"""Spark reads the broker's records without waiting for more of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from twofold.infra.archive.log_union import broker_frame
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, PARTITIONS, RECORDS = "waits.none", 24, 5
KAFKA_WAITS_S = 0.5
"""How long a broker holds a fetch without records, by default."""

pytestmark = pytest.mark.platform


def test_a_partition_that_is_read_to_its_end_is_not_waited_for(broker: Settings, spark: SparkSession) -> None:
    topic_admin.ensure_topics(broker, [TopicSpec(name=TOPIC, partitions=PARTITIONS)])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(PARTITIONS * RECORDS):
        producer.send(TOPIC, b"x", partition=number % PARTITIONS)
    producer.close()

    def read_s() -> float:
        began = time.monotonic()
        rows = broker_frame(spark, broker, TOPIC, dict.fromkeys(range(PARTITIONS), (0, RECORDS))).count()
        assert rows == PARTITIONS * RECORDS
        return time.monotonic() - began

    # The first read in a process also loads classes, which is slow on a busy machine.
    assert any(read_s() < PARTITIONS * KAFKA_WAITS_S for _ in range(3))
