"""Two drivers with two homes on one lake, one of them paused at a time, ingest each record once."""

from __future__ import annotations

import os
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

from infra.settings import Settings
from tables.engine.events.ingested_offsets import read_ingested_offsets
from tests.chaos.ingest_driver import Driver
from tests.platform.acknowledged_records import faults
from tests.servers import wait_until
from tests.streaming.ingest.small_log import frontier_faults, late_faults
from tests.worlds import World
from traffic.fault_injection import FaultInjection
from traffic.producer import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILOVERS = int(os.environ.get("CHAOS_KILLS", "3"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1_000_000)
FIRST = date(2013, 1, 1)
DAYS = 28
MESSY = FaultInjection(hours_share=0.2, duplicate_share=0.05, corrupt_share=0.1)

pytestmark = [pytest.mark.platform, pytest.mark.spark, pytest.mark.timeout(300 + 60 * FAILOVERS)]


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


def test_of_two_drivers_that_take_turns_each_record_is_ingested_once(log: Settings, spark: SparkSession) -> None:
    """Two drivers start, which is what takes the time; `make chaos` lets one take over from the other more often."""
    print(f"CHAOS_SEED={SEED} CHAOS_KILLS={FAILOVERS}")
    dice = random.Random(SEED)
    world = World(spark, log)
    topics = world.registry.domain_topics("flights")
    homes = [replace(log, home=log.home / f"driver-{n}", lake=log.lake_uri, max_offsets=2_000) for n in range(2)]
    drivers = [Driver(home) for home in homes]

    def ingested() -> int:
        return sum(sum(read_ingested_offsets(world.lake, topic).ends.values()) for topic in topics)

    def writers() -> set[str]:
        commits = (c for t in topics for c in world.lake.commits(t.full_name, 0, world.lake.version(t.full_name)))
        return {str(commit.info["driver"]) for commit in commits}

    try:
        with sending(log):
            wait_until(lambda: all((home.progress / "flights").exists() for home in homes))
            for number in range(FAILOVERS):
                asleep = drivers[number % 2]
                time.sleep(dice.uniform(0, 1.5))
                asleep.send(signal.SIGSTOP)
                before = ingested()
                wait_until(lambda before=before: ingested() > before)  # type: ignore[misc]
                time.sleep(dice.uniform(0, 1.5))
                asleep.send(signal.SIGCONT)
        wait_until(lambda: faults(log) == {})
    finally:
        for driver in drivers:
            driver.end()

    assert len(writers()) == 2
    assert [fault for topic in topics for fault in frontier_faults(world.lake, topic)] == []
    assert [fault for topic in topics for fault in late_faults(world.lake, topic)] == []
    assert faults(log) == {}
