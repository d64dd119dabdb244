"""Events and quarantine are the acknowledged journal, each offset once, and tables are what they should be, whatever is
killed.
"""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.harness.tiers import this_run
from tests.platform import crashing_driver
from tests.platform.acknowledged_records import faults
from tests.platform.crashing_driver import Stage
from tests.platform.supervised_driver import DOMAIN, FIRST, MESSY, kill, live_driver, sending, works_since
from tests.servers import wait_until
from tests.support.crashes import run_until_killed
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.producer import Summary, run
from twofold.infra.kafka.topic_admin import offsets, reach
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.platform, pytest.mark.spark]

ARE_ALL_KILLED = this_run.kills > 0
LATE = replace(MESSY, hours_share=0.2)


def send(settings: Settings, day: int, imperfections: FaultInjection = MESSY) -> Summary:
    """Send a day, as fast as the broker takes it."""
    start = FIRST + timedelta(days=day)
    return run(settings, domain=DOMAIN, start=start, end=start + timedelta(days=1), imperfections=imperfections)


def kill_at(stage: Stage, settings: Settings, _: SparkSession | None = None) -> None:
    """Run a stream driver until it kills itself at the stage; nothing that it started is left."""
    run_until_killed(settings, "tests.platform.crashing_driver", stage.__name__)


def fail_at(stage: Stage, settings: Settings, spark: SparkSession) -> None:
    """Ingest in this process until it fails at the stage."""
    from pyspark.errors import StreamingQueryException

    with crashing_driver.failing_at(stage, settings), pytest.raises(StreamingQueryException, match="Died"):
        ingest(spark, settings)


def topics_alone(spark: SparkSession, settings: Settings) -> World:
    """The topics without the tables, which ingest does not need."""
    return World(spark, settings, "flights", registry=Registry(load().restricted_to([DOMAIN]).topics, {}))


def ingest(spark: SparkSession, settings: Settings) -> None:
    """Take in what is in the topics."""
    world = topics_alone(spark, settings)
    Ingest(spark, world.lake, world.registry, DOMAIN).start(available_now=True).awaitTermination()


def ingest_checkpoint(settings: Settings) -> Path:
    return settings.checkpoints / DOMAIN / "ingest"


@pytest.mark.kills
def test_every_acknowledged_record_is_in_events_or_quarantine_once(log: Settings, spark: SparkSession) -> None:
    """One driver is killed, where only its end stops Spark; elsewhere ingest fails at the stage.

    `make prove` kills a driver at each stage, at one with both engines.
    """
    through_spark = replace(log, engine="spark")
    end_at = kill_at if ARE_ALL_KILLED else fail_at
    crashes = [
        (log, end_at, crashing_driver.before_decoding),
        (log, end_at, crashing_driver.before_quarantine),
        (log, end_at, crashing_driver.after_events_of_one_topic),
        (log, end_at, crashing_driver.before_checkpoint),
        (through_spark, kill_at, crashing_driver.within_append),
    ]
    if ARE_ALL_KILLED:
        crashes.append((through_spark, kill_at, crashing_driver.after_events_of_one_topic))
    for day, (settings, crash, stage) in enumerate(crashes):
        sent = send(settings, day)
        crash(stage, settings, spark)
        left = faults(log)
        assert set(left) <= {"missing"}, stage.__name__
        assert 0 <= left["missing"] <= sent.records
        assert (left["missing"] > 0) == (stage is not crashing_driver.before_checkpoint), stage.__name__

    ingest(spark, through_spark)

    assert faults(log) == {}
    assert offsets_of_the_group(log) == {
        (topic, partition): bounds.latest
        for topic, partitions in offsets(log, list(topics_alone(spark, log).registry.topics)).items()
        for partition, bounds in partitions.items()
    }


def offsets_of_the_group(settings: Settings) -> dict[tuple[str, int], int]:
    """What other tools see of ingest."""
    with reach(settings) as admin:
        found = admin.list_group_offsets(f"twofold.{DOMAIN}")[f"twofold.{DOMAIN}"]
    return {(partition.topic, partition.partition): at.offset for partition, at in found.items()}


def test_a_checkpoint_that_is_lost_or_old_repeats_and_loses_nothing(
    log: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    """Four days are sent and ingested in five starts of ingest."""
    checkpoint, old = ingest_checkpoint(log), tmp_path / "old"
    send(log, 0)
    ingest(spark, log)
    shutil.copytree(checkpoint, old)
    send(log, 1)
    ingest(spark, log)

    shutil.rmtree(checkpoint)
    ingest(spark, log)
    assert faults(log) == {}
    send(log, 2)
    ingest(spark, log)
    assert faults(log) == {}

    shutil.rmtree(checkpoint)
    shutil.copytree(old, checkpoint)
    send(log, 3)
    ingest(spark, log)
    assert faults(log) == {}


@pytest.mark.parametrize("is_empty", [False, pytest.param(True, marks=pytest.mark.prove)], ids=["behind", "empty"])
def test_a_checkpoint_ahead_of_its_table_is_refused_until_removed(
    log: Settings, spark: SparkSession, is_empty: bool
) -> None:
    """Four days are sent and ingested in five starts of ingest."""
    from pyspark.errors import StreamingQueryException

    for day in (0, 1):
        send(log, day)
        ingest(spark, log)
    departures = topics_alone(spark, log).lake.open("flights.departures")
    departures.restore(0 if is_empty else departures.version() - 1)
    send(log, 2)
    with pytest.raises(StreamingQueryException, match=r"LogGap: flights\.departures, partition \d: .* would be lost"):
        ingest(spark, log)
    assert set(faults(log)) == {"missing"}

    shutil.rmtree(ingest_checkpoint(log))
    ingest(spark, log)
    assert faults(log) == {}
    send(log, 3)
    ingest(spark, log)
    assert faults(log) == {}


@pytest.mark.prove
@pytest.mark.kills
def test_a_driver_killed_at_any_moment_leaves_every_table_right(
    broker: Settings, log: Settings, spark: SparkSession
) -> None:
    """A driver of several tables, with `--kills` of all, is killed; what it left is finished and verified."""
    tables = [] if ARE_ALL_KILLED else list(crashing_driver.KEPT)
    moments = random.Random(this_run.seed)
    with live_driver(broker, log, *tables) as driver, sending(log, days=14, seconds=240, imperfections=LATE):
        began = datetime.now(UTC)
        for _ in range(3 if ARE_ALL_KILLED else 1):
            wait_until(partial(works_since, log, began, tables=True))
            threading.Event().wait(moments.uniform(0, 4))
            began = kill(driver())

    world = World(spark, log, "flights")
    tables = tables or world.all_tables
    ingest(spark, log)
    world.maintain(tables)

    assert faults(log) == {}
    outcomes = world.reconcile(tables, verify=True)
    assert {o.table for o in outcomes} == set(tables)
    assert [o for o in outcomes if o.unexplained] == []
    assert [o for o in world.reconcile(tables) if o.changed] == []


@pytest.mark.prove
def test_a_micro_batch_of_a_table_happens_once(log: Settings, spark: SparkSession) -> None:
    """A driver is started, and killed once it has got far enough."""
    settings = replace(log, max_offsets=500, max_files=1)
    world, tables = World(spark, settings, "flights"), crashing_driver.KEPT
    world.maintain(tables)  # all that is there when a stream begins is one micro-batch
    send(settings, 0, LATE)
    ingest(spark, settings)
    kill_at(crashing_driver.after_commits_of_tables, settings)

    cut_short = {name: was_cut_short(world, name) for name in tables}
    assert all(cut_short[name] for name in crashing_driver.TABLES)
    world.maintain(tables)

    for name in tables:
        commits = list(world.lake.commits(name, -1, world.lake.version(name)))
        batches = [commit.info["batch"] for commit in commits if "batch" in commit.info]
        if name != "flights.carrier_days":  # the rest of a refresh that was cut short may be a commit of its own
            assert len(batches) == len(set(batches)) > 0
    assert [o for o in world.reconcile(tables, verify=True) if o.unexplained] == []
    assert [o for o in world.reconcile(tables) if o.changed] == []


def was_cut_short(world: World, name: str) -> bool:
    """Whether the table has a micro-batch that its checkpoint does not have as ended."""
    checkpoint = Checkpoint.of_table(world.settings, world.registry.find_table(name))
    newest = world.lake.newest_info(name, "batch")
    ended = checkpoint.position[0] if checkpoint.position else checkpoint.committed
    return newest is not None and newest["batch"] > (-1 if ended is None else ended)


def test_a_table_whose_checkpoint_is_lost_keeps_its_corrections(log: Settings, spark: SparkSession) -> None:
    name = "flights.delays_by_hour"
    settings = replace(log, max_offsets=500, max_files=1)
    world = World(spark, settings, "flights")
    world.maintain([name])  # nothing is late that is there when a stream begins
    send(settings, 0, LATE)
    ingest(spark, settings)
    world.maintain([name])
    closed_before = world.watermark_ms(name)
    assert sum(o.changed for o in world.reconcile([name])) > 0, "no row was corrected, so none could be lost"
    right = closed_rows(world, name, closed_before)
    assert right

    for _ in range(2):
        shutil.rmtree(settings.checkpoints / DOMAIN / "delays_by_hour")
        world.maintain([name])
        assert closed_rows(world, name, closed_before) == right

    assert [o for o in world.reconcile([name], verify=True) if o.unexplained] == []
    assert closed_rows(world, name, closed_before) == right


def closed_rows(world: World, name: str, watermark_ms: int | None) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.register("live", world.rows(name))
    return connection.execute(f"FROM live WHERE epoch_ms(closes_at) < {watermark_ms or 0} ORDER BY ALL").fetchall()
