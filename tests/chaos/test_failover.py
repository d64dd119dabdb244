"""Two drivers with two homes on one lake, one paused at a time, ingest each record once, and end with their JVMs."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.chaos.ingest_driver import Driver
from tests.harness.tiers import this_run
from tests.platform.acknowledged_records import faults
from tests.servers import empty_log, wait_until
from tests.streaming.ingest.small_log import frontier_faults, late_faults
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import run
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import read
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILOVERS = this_run.kills or 2
SEED = this_run.seed
FIRST = date(2013, 1, 1)
DAYS = 28
MESSY = FaultInjection(hours_share=0.2, duplicate_share=0.05, corrupt_share=0.1)

pytestmark = [pytest.mark.prove, pytest.mark.platform, pytest.mark.spark, pytest.mark.timeout(1_200 + 60 * FAILOVERS)]


@pytest.fixture(scope="module")
def log(broker: Settings) -> Iterator[Settings]:
    """The lake's home; the topics are empty."""
    with empty_log(broker) as settings:
        yield settings


@pytest.fixture(scope="module")
def drivers(log: Settings) -> Iterator[list[Driver]]:
    """Two, which have begun to ingest."""
    found = [
        Driver(replace(log, home=log.home / f"driver-{n}", lake=log.lake_uri, max_offsets=2_000)) for n in range(2)
    ]
    try:
        wait_until(lambda: all((driver.settings.progress / "flights").exists() for driver in found))
        yield found
    finally:
        for driver in found:
            driver.end()


@contextmanager
def sending(settings: Settings) -> Iterator[None]:
    """Send records for as long as the block."""
    stop = threading.Event()
    end = FIRST + timedelta(days=DAYS)
    with ThreadPoolExecutor(max_workers=1) as pool:
        sent = pool.submit(
            run, settings, domain="flights", start=FIRST, end=end, speed=8_000, imperfections=MESSY, stop=stop
        )
        try:
            yield
        finally:
            stop.set()
    sent.result()


@pytest.mark.kills
def test_of_two_drivers_that_take_turns_each_record_is_ingested_once(
    log: Settings, drivers: list[Driver], spark: SparkSession
) -> None:
    """Two drivers start, which is what takes the time; with `--kills` one takes over from the other more often."""
    dice = random.Random(SEED)
    world = World(spark, log, "flights")
    topics = world.registry.domain_topics("flights")

    def ingested() -> int:
        return sum(sum(read_ingested_offsets(world.lake, topic).ends.values()) for topic in topics)

    def writers() -> set[str]:
        commits = (c for t in topics for c in world.lake.commits(t.full_name, 0, world.lake.version(t.full_name)))
        return {str(commit.info["driver"]) for commit in commits}

    with sending(log):
        for number in range(FAILOVERS):
            asleep = drivers[number % 2]
            time.sleep(dice.uniform(0, 1.5))
            asleep.send(signal.SIGSTOP)
            before = ingested()
            wait_until(lambda before=before: ingested() > before)  # type: ignore[misc]
            time.sleep(dice.uniform(0, 1.5))
            asleep.send(signal.SIGCONT)
    wait_until(lambda: faults(log) == {})

    assert len(writers()) == 2
    assert [fault for topic in topics for fault in frontier_faults(world.lake, topic)] == []
    assert [fault for topic in topics for fault in late_faults(world.lake, topic)] == []
    assert faults(log) == {}


def test_a_driver_ends_with_its_jvm(drivers: list[Driver]) -> None:
    """The kernel kills a JVM where memory is short."""
    driver = drivers[0]
    driver.kill_jvm()
    code, written = driver.wait(300)
    assert code != 0
    assert "The JVM of the stream of flights ended with exit code -9" in written
    [failed] = [p for p in read(driver.settings, "flights") if p.query == "ingest"]
    assert "exit code -9" in failed.error
