"""A new stream begins with a snapshot of its inputs: it needs no old commit, and reads nothing that was taken back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.batch.test_cleaned_logs import clean
from tests.late_reading import TOPIC, hours
from tests.plant import plant, reading
from tests.rewrites import replay
from tests.streaming.rebuild.test_lost_state import ALARMED_FILE, ALARMS_FILE
from tests.tables.declared import TOPIC_FILE, edited
from twofold.infra.errors import BadDeclaration
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

EACH_FILE = '''
"""Every reading."""
from twofold import table


@table(primary_key=["sensor", "read_at"], event_time="read_at", recompute_by=["sensor"])
def each(readings):
    return readings.select("sensor", "read_at", "value")
'''
STRICT_TOPIC = edited(
    edited(TOPIC_FILE, "import Topic\n", "import Topic\nfrom twofold.quality.rules import between\n"),
    'dedup_keys=["sensor"],',
    'dedup_keys=["sensor"],\n    checks=[between("value", 0, 50)],',
)
TABLES = ["hours", "each", "newest"]


def values(world: World, table: str) -> list[float]:
    return sorted(world.rows(f"plant.{table}")["value"].to_pylist())


def checkpoint(world: World, table: str) -> Checkpoint:
    return Checkpoint.of_table(world.settings, world.registry.find_table(table))


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """Three commits of readings, the last of which is late by the second, and a log that was cleaned since."""
    world = World(spark, settings, "plant", plant(tmp_path / "declared", each=EACH_FILE))
    for readings in ([("a", 0.1, 1), ("b", 0.5, 2)], [("a", 9, 4), ("b", 9, 8)], [("a", 0.2, 16), ("a", 9.5, 32)]):
        world.append({TOPIC: [reading(*one) for one in readings]})
    clean(world, TOPIC)
    return world


def test_tables_of_every_strategy_begin_on_a_topic_whose_log_was_cleaned(world: World) -> None:
    world.maintain(TABLES)
    assert hours(world) == {("a", 0): 17, ("b", 0): 2, ("a", 9): 36, ("b", 9): 8}
    assert (values(world, "each"), values(world, "newest")) == ([1, 2, 4, 8, 16, 32], [8, 32])

    world.append({TOPIC: [reading("a", 0.3, 64), reading("b", 9.2, 70), reading("a", 9, 4)]})
    world.append({TOPIC: [reading("b", 12, 1)]})
    world.maintain(TABLES)
    assert hours(world) == {("a", 0): 17, ("b", 0): 2, ("a", 9): 36, ("b", 9): 78, ("b", 12): 1}
    outcomes = world.reconcile(TABLES)
    assert [(o.table, o.changed) for o in outcomes if o.changed] == [("plant.hours", 1)]
    assert hours(world)["a", 0] == 81
    assert values(world, "each") == [1, 1, 2, 4, 8, 16, 32, 64, 70]


def test_a_lost_checkpoint_starts_on_a_cleaned_log_and_keeps_corrections(world: World) -> None:
    world.maintain(TABLES)
    world.append({TOPIC: [reading("a", 0.3, 64)]})
    world.maintain(["hours"])
    world.reconcile(["hours"])
    assert hours(world)["a", 0] == 81
    world.append({TOPIC: [reading("a", 9.6, 64), reading("b", 12, 1)]})
    clean(world, TOPIC)
    for table in TABLES:
        shutil.rmtree(checkpoint(world, table).path)
    world.maintain(TABLES)
    assert hours(world) == {("a", 0): 81, ("b", 0): 2, ("a", 9): 100, ("b", 9): 8, ("b", 12): 1}
    assert (len(values(world, "each")), values(world, "newest")) == (9, [1, 64])
    assert [o for o in world.reconcile(TABLES) if o.changed] == []


@pytest.fixture
def replayed(spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A reading that today's rules refuse was taken out of the events by a replay, before streams had read it."""
    registry = plant(tmp_path / "before", each=EACH_FILE)
    world = World(spark, settings, "plant", registry)
    world.append({TOPIC: [reading("a", 1, 1)]})
    world.maintain(TABLES)
    world.append({TOPIC: [reading("a", 2, 99), reading("a", 1.5, 2)]})
    world.registry = plant(tmp_path / "after", each=EACH_FILE, readings=STRICT_TOPIC)
    monkeypatch.setattr("twofold.batch.rewrite.replay.Log", lambda *_: world)
    platform = Platform(spark, world.lake, world.registry)
    replay(platform, world.registry.topics[TOPIC])
    assert sorted(world.rows(TOPIC)["value"].to_pylist()) == [1, 2]
    return world


def test_what_a_replay_removed_leaves_a_table_whose_stream_was_behind(replayed: World) -> None:
    replayed.reconcile(TABLES)
    replayed.maintain(TABLES)  # reads the old file, too
    replayed.reconcile(TABLES)
    assert (values(replayed, "each"), values(replayed, "newest")) == ([1, 2], [2])
    assert [o for o in replayed.reconcile(TABLES) if o.changed] == []


def test_what_a_replay_removed_is_not_read_by_a_new_stream(replayed: World) -> None:
    for table in TABLES:
        shutil.rmtree(checkpoint(replayed, table).path)
    replayed.maintain(TABLES)
    assert (values(replayed, "each"), values(replayed, "newest")) == ([1, 2], [2])
    assert hours(replayed)["a", 1] == 3


def test_a_function_that_reads_its_inputs_in_another_order_is_refused(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    swapped = edited(ALARMED_FILE, "def alarmed(readings, alarms)", "def alarmed(alarms, readings)")
    world = World(spark, settings, "plant", plant(tmp_path, alarms=ALARMS_FILE, alarmed=swapped))
    with pytest.raises(BadDeclaration, match="reads readings, alarms; expected the order of its parameters"):
        world.maintain(["alarmed"])
