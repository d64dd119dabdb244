"""A repair overwrites what a verification has found, also where that is more than a message names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plant import plant, reading
from twofold.batch.reconcile import Reconcile
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark


def test_all_rows_of_a_verification_are_repaired(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.tables.refresh.row_diff._KEPT", 1)
    world = World(spark, settings, "plant", plant(tmp_path / "tables"))
    world.append({"readings": [reading("a", at, at) for at in range(12)]})
    world.append({"readings": [reading("a", 24, 24)]})
    world.maintain(["hours"])
    right = sorted(world.rows("plant.hours").to_pylist(), key=str)
    world.reconcile(["hours"])

    def damage(least: int) -> None:
        world.lake.open("plant.hours").update(updates={"greatest": "-1"}, predicate=f"total >= {least} AND total < 12")

    def reconcile() -> Reconcile:
        return Reconcile(Platform(spark, world.lake, world.registry), world.registry.find_table("hours"))

    damage(8)
    found = reconcile().run(verify=True)[-1]
    assert (found.unexplained, len(found.differences)) == (4, 1)
    assert found.compared == 12, "the thirteenth hour is open"
    verified, repaired = reconcile().repair(found)
    assert (verified.unexplained, repaired.cause, repaired.updated) == (0, "repair", 4)
    assert sorted(world.rows("plant.hours").to_pylist(), key=str) == right
    assert reconcile().run(verify=True)[-1].unexplained == 0
