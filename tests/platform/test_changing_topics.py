"""Ingest continues over topics that are added, removed or recreated while its query runs."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.platform.acknowledged_records import faults
from tests.servers import wait_until
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import run
from twofold.infra.kafka import topic_admin
from twofold.infra.process.kept_running import KeptRunning
from twofold.infra.project.settings import Settings
from twofold.streaming.driver import QueryFailures
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.streaming.query import progress
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.tables.refresh.events.topic_specs import specs
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.spark]

DOMAIN, ADDED = "flights", "flights.departures"


def send(settings: Settings, day: int) -> None:
    start = date(2013, 1, 1) + timedelta(days=day)
    run(settings, domain=DOMAIN, start=start, end=start + timedelta(days=1), imperfections=FaultInjection())


def ingest(spark: SparkSession, settings: Settings, registry: Registry) -> World:
    world = World(spark, settings, "flights", registry=registry)
    Ingest(spark, world.lake, registry, DOMAIN).start(available_now=True).awaitTermination()
    return world


def test_a_topic_that_is_added_or_removed_stops_no_other(log: Settings, spark: SparkSession) -> None:
    """Ingest starts three times."""
    every = load().restricted_to([DOMAIN])
    others = Registry({name: topic for name, topic in every.topics.items() if name != ADDED}, {})
    send(log, 0)
    ingest(spark, log, others)
    with topic_admin.reach(log) as admin:
        from kafka import TopicPartition

        begins = {p: bounds.latest - 1 for p, bounds in topic_admin.offsets(log, [ADDED])[ADDED].items()}
        admin.delete_records({TopicPartition(ADDED, p): offset for p, offset in begins.items()})
    assert min(begins.values()) > 0

    send(log, 1)
    world = ingest(spark, log, Registry(every.topics, {}))
    ends = {p: bounds.latest for p, bounds in topic_admin.offsets(log, [ADDED])[ADDED].items()}
    assert read_ingested_offsets(world.lake, every.topics[ADDED]).ends == ends
    assert world.lake.rows(ADDED) > 0

    send(log, 2)
    world = ingest(spark, log, others)
    on_broker = topic_admin.offsets(log, list(others.topics))
    for name, topic in others.topics.items():
        assert read_ingested_offsets(world.lake, topic).ends == {
            p: bounds.latest for p, bounds in on_broker[name].items()
        }
    ingest(spark, log, Registry(every.topics, {}))
    assert set(faults(log)) <= {"missing"}
    assert sum(faults(log).values()) == sum(begins.values())


def test_a_topic_that_is_created_again_is_left_out_while_the_others_go_on(log: Settings, spark: SparkSession) -> None:
    registry = Registry(load().restricted_to([DOMAIN]).topics, {})
    world = World(spark, log, "flights", registry=registry)
    send(log, 0)
    failures = QueryFailures(log, DOMAIN, "ingest")
    kept = KeptRunning(DOMAIN, lambda: Ingest.start(started, available_now=False), None, failures)
    started = Ingest(spark, world.lake, registry, DOMAIN)

    def ingested(names: list[str]) -> bool:
        kept.keep()
        on_broker = topic_admin.offsets(log, names)
        return all(
            read_ingested_offsets(world.lake, registry.topics[name]).ends.get(p, 0) == bounds.latest
            for name in names
            for p, bounds in on_broker.get(name, {}).items()
        )

    others = [name for name in registry.topics if name != ADDED]
    try:
        wait_until(lambda: ingested(list(registry.topics)))
        before, rows = read_ingested_offsets(world.lake, registry.topics[ADDED]).ends, world.lake.rows(ADDED)
        with topic_admin.reach(log) as admin:
            admin.delete_topics([ADDED])
        wait_until(lambda: not topic_admin.offsets(log, [ADDED]))
        topic_admin.ensure_topics(log, [spec for spec in specs(registry, DOMAIN) if spec.name == ADDED])
        for day in (1, 2):
            send(log, day)
        wait_until(lambda: ingested(others))
        told = next(p.error for p in progress.read(log, DOMAIN) if p.query == "ingest")
        assert f"{ADDED} is left out" in told
        assert (read_ingested_offsets(world.lake, registry.topics[ADDED]).ends, world.lake.rows(ADDED)) == (
            before,
            rows,
        )
    finally:
        kept.stop()
