"""A small home whose stream has dropped one late reading: what reconcile has to correct, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plant import hour, plant, reading
from twofold.infra.instants import Interval, epoch_ms
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "plant.readings"
ZERO = Interval(int(epoch_ms(hour(0)) or 0), int(epoch_ms(hour(1)) or 0))
"""The hour of the late reading."""


@pytest.fixture(scope="session")
def late_reading(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Hour 0 has closed when a third reading of sensor a is ingested, which the stream drops; offset 3 is no reading.

    Late for hour 0 of sensor a are 4.0; the stream has given it 3.0. Who changes it works on a copy.
    """
    folder = tmp_path_factory.mktemp("late")
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", plant(folder / "declared"))
    world.append({TOPIC: [reading("a", 0.1, 1.0), reading("a", 0.2, 2.0), reading("b", 0.5, 5.0), b"no JSON"]})
    world.append({TOPIC: [reading("a", 9, 1.0), reading("b", 9, 1.0)]})
    world.maintain(world.all_tables)
    world.append({TOPIC: [reading("a", 0.3, 4.0)]})
    world.maintain(world.all_tables)
    return world


def platform(world: World) -> Platform:
    return Platform(world.spark, world.lake, world.registry)


def hours(world: World) -> dict[tuple[str, int], float]:
    """(sensor, hour) -> total."""
    rows = world.rows("plant.hours").to_pylist()
    return {(row["sensor"], round((row["hour"] - hour(0)).total_seconds() / 3600)): row["total"] for row in rows}


def damage(world: World, name: str, values: dict[str, str], where: str) -> None:
    """Overwrite rows past the platform."""
    world.lake.open(name).update(updates=values, predicate=where)
