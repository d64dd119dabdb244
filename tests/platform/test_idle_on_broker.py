"""On a real broker an idle topic holds no table back, and its later records are corrected."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from tests.servers import wait_until
from tests.streaming.ingest.test_idle_topics import NOON, TABLE, TOPIC
from tests.tables.declared import written
from twofold.infra.kafka import topic_admin
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.metadata_columns import OFFSET
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.events.topic_specs import specs
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Send = Callable[..., None]

pytestmark = [pytest.mark.platform, pytest.mark.spark]

PAUSE_S = 5


@pytest.fixture
def house(tmp_path: Path) -> Registry:
    """Doors, idle after a pause, lamps, and a table that counts both."""
    files = {
        "house/doors.py": f'"""Doors."""{TOPIC % f"{PAUSE_S} seconds"}',
        "house/lamps.py": f'"""Lamps."""{TOPIC % None}',
        "house/uses.py": TABLE,
    }
    return load(written(tmp_path / "declared", files))


@contextmanager
def ingesting(world: World) -> Iterator[Send]:
    """Ingest runs in the block; gives what sends records, of minutes after noon, and waits until they are in."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=world.settings.bootstrap_servers.split(","))
    sent = dict.fromkeys(world.registry.topics, 0)

    def send(**minutes: Sequence[float]) -> None:
        for what, of_topic in minutes.items():
            name = f"house.{what}"
            for minute in of_topic:
                record = {"id": str(sent[name]), "at": (NOON + timedelta(minutes=minute)).isoformat()}
                producer.send(name, json.dumps(record).encode())
                sent[name] += 1
        producer.flush()
        wait_until(
            lambda: all(
                len(world.rows(f"house.{what}")) - len(heartbeats(world, what)) == sent[f"house.{what}"]
                for what in minutes
            )
        )

    stream = Ingest(world.spark, world.lake, world.registry, "house").start(available_now=False)
    try:
        yield send
    finally:
        stream.stop()
        producer.close()


def heartbeats(world: World, what: str) -> list[float]:
    """To which minutes after noon the topic was moved."""
    rows = world.rows(f"house.{what}")
    return [(time - NOON) / timedelta(minutes=1) for time in rows["at"].filter(pc.is_null(rows[OFFSET])).to_pylist()]


def uses(world: World) -> dict[float, int]:
    rows = world.rows("house.uses").to_pylist()
    return {(row["hour"] - NOON) / timedelta(minutes=1): row["uses"] for row in rows}


def watermark_min(world: World) -> float:
    """Minutes after noon that the table's stream has closed, once it has taken in what is there."""
    world.maintain(["uses"])
    return ((world.watermark_ms("uses") or 0) / 1_000 - NOON.timestamp()) / 60


def test_an_idle_topic_stops_holding_a_watermark_back(
    broker: Settings, house: Registry, spark: SparkSession, tmp_path: Path
) -> None:
    """Streams that follow a broker, and a pause until a topic counts as idle."""
    topic_admin.ensure_topics(broker, specs(house, "house"))
    settings = replace(broker, home=tmp_path / "home", bootstrap=broker.bootstrap_servers)
    world = World(spark, settings, "house", house)
    with ingesting(world) as send:
        send(doors=[1], lamps=[1, 100])
        assert (heartbeats(world, "doors"), watermark_min(world)) == ([], -9)

        time.sleep(PAUSE_S)
        send(lamps=[120])
        wait_until(lambda: heartbeats(world, "doors") == [120])
        assert watermark_min(world) == 110
        assert uses(world) == {0: 2, 60: 1, 120: 1}

        send(doors=[30])
        assert watermark_min(world) == 110
        assert uses(world) == {0: 2, 60: 1, 120: 1}
    assert [o.changed for o in world.reconcile(["uses"])] == [1]
    assert uses(world) == {0: 3, 60: 1, 120: 1}
