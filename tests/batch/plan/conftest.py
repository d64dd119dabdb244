"""A small home whose tables are right: what a plan, or a change of code, begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plant import DAYS_FILE, HOURS, plant, reading
from twofold.infra.project.settings import Settings
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def reconciled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Closed are the hours 1 (2.0) and 2 (3.0) of sensor `b`, and 9 (1.0) of `a`; 10 (1.0) of `a` is open.

    Who changes it works on a copy.
    """
    folder, tables = tmp_path_factory.mktemp("reconciled"), ("hours", "days")
    registry = plant(folder / "then", hours=HOURS, days=DAYS_FILE)
    world = World(spark, Settings(home=folder / "home", shuffle_partitions=1), "plant", registry)
    world.append({"readings": [reading("b", 1, 2.0), reading("b", 2, 3.0), reading("a", 9, 1.0)]})
    world.maintain(tables)
    world.append({"readings": [reading("a", 10, 1.0)]})
    world.maintain(tables)
    world.reconcile(tables)
    return world
