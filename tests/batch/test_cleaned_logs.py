"""Logs that retention has cleaned since the last reconcile stop nothing: what they said is looked for in the rows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.late_reading import TOPIC, damage, hours
from tests.plant import DAYS_FILE, plant, reading
from twofold.batch.changelog_check import unexplained_changes
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def streamed(late_reading: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("streamed") / "home"
    world = late_reading.copied_to(replace(late_reading.settings, home=home))
    world.reconcile(["hours"])
    world.append({TOPIC: [reading("a", 0.4, 8.0), reading("b", 20, 1.0)]})
    world.maintain(["hours"])
    return world


@pytest.fixture
def world(streamed: World, tmp_path: Path) -> World:
    return streamed.copied_to(replace(streamed.settings, home=tmp_path / "home"))


def clean(world: World, name: str) -> None:
    """Remove every commit but the newest, as Delta's retention does after a checkpoint."""
    world.lake.open(name).create_checkpoint()
    newest = world.lake.version(name)
    for path in Path(world.lake.uri(name), "_delta_log").glob("*.json"):
        if int(path.stem) < newest:
            path.unlink()


@pytest.mark.parametrize("cleaned", [["plant.hours"], [TOPIC], ["plant.hours", TOPIC]])
def test_a_table_is_corrected_though_logs_were_cleaned(world: World, cleaned: list[str]) -> None:
    for name in cleaned:
        clean(world, name)
    (outcome,) = world.reconcile(["hours"])
    assert outcome.changed == outcome.updated == 1
    assert hours(world)["a", 0] == 15.0
    assert unexplained_changes(world.lake, world.registry.find_table("hours")) == 0
    assert world.reconcile(["hours"])[0].changed == 0


def test_a_stream_that_was_down_while_the_log_was_cleaned_begins_again(world: World) -> None:
    world.append({TOPIC: [reading("b", 20.5, 2.0), reading("b", 21, 1.0)]})
    world.append({TOPIC: [reading("b", 22, 1.0)]})
    clean(world, TOPIC)
    world.maintain(["hours"])
    assert (hours(world)["a", 0], hours(world)["b", 20], hours(world)["b", 21]) == (7.0, 3.0, 1.0)
    assert world.reconcile(["hours"])[-1].changed == 1
    assert hours(world)["a", 0] == 15.0


def test_what_a_replay_took_out_is_taken_out_though_the_log_was_cleaned(world: World) -> None:
    world.reconcile(["hours"])
    assert hours(world)["b", 0] == 5.0
    world.lake.open(TOPIC).delete("value = 5.0")
    world.append({TOPIC: [reading("b", 20.1, 1.0)]})
    clean(world, TOPIC)
    world.reconcile(["hours"])
    assert ("b", 0) not in hours(world)


def test_a_changed_row_is_missed_by_what_is_left_of_the_history(world: World) -> None:
    clean(world, "plant.hours")
    world.reconcile(["hours"])
    damage(world, "plant.hours", {"total": "1.5"}, "sensor = 'a' AND total = 15.0")
    assert unexplained_changes(world.lake, world.registry.find_table("hours")) == 1


def test_a_table_that_reads_a_cleaned_one_is_recomputed(spark: SparkSession, streamed: World, tmp_path: Path) -> None:
    shutil.copytree(streamed.settings.home, tmp_path / "home")
    settings = replace(streamed.settings, home=tmp_path / "home")
    world = World(spark, settings, "plant", plant(tmp_path / "declared", days=DAYS_FILE), dict(streamed.log))
    world.maintain(["days"])
    world.reconcile(["days"])
    world.reconcile(["hours"])
    world.append({TOPIC: [reading("b", 30, 1.0)]})
    world.maintain(["hours"])
    clean(world, "plant.hours")
    world.reconcile(["days"])
    assert {row["sensor"]: row["total"] for row in world.rows("plant.days").to_pylist()} == {"a": 16.0, "b": 8.0}
