"""Sessions that are open in several partitions of a state are the same after it was made again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from cli.recovery import Recover
from infra.settings import Settings
from tables.checkpoint import Checkpoint
from tables.setup import Platform
from tests.plant import hour, plant, reading
from tests.worlds import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BURSTS_FILE = '''\
"""Readings of a sensor that follow each other within an hour."""
from tables.declaration import Table


def bursts(readings):
    from pyspark.sql import functions as F

    return readings.groupBy("sensor", F.session_window("read_at", "1 hour").alias("burst")).agg(
        F.count("*").alias("readings")
    ).select("sensor", F.col("burst.start").alias("began_at"), F.col("burst.end").alias("ends_at"), "readings")


TABLE = Table(
    derive=bursts,
    key=["sensor", "began_at"],
    event_time="began_at",
    ends_at="ends_at",
    watermark="1 hour",
    recompute_by=["sensor"],
    lookback="1 hour",
)
'''


def test_open_sessions_in_several_partitions_go_on_after_a_recovery(spark: SparkSession, tmp_path: Path) -> None:
    registry = plant(tmp_path / "declared", bursts=BURSTS_FILE)
    world = World(spark, Settings(home=tmp_path / "home", shuffle_partitions=3), "plant", registry)
    table = registry.find_table("bursts")

    def rows() -> set[tuple[str, datetime, datetime, int]]:
        columns = ("sensor", "began_at", "ends_at", "readings")
        return {tuple(row[c] for c in columns) for row in world.rows("plant.bursts").to_pylist()}  # type: ignore[misc]

    for at in (0, 0.5, 3):
        world.append({"readings": [reading(sensor, at, 1) for sensor in "abcdef"]})
        world.maintain(["bursts"])
    world.append({"readings": [reading(sensor, 3.75, 1) for sensor in "ace"]})
    world.maintain(["bursts"])
    closed = {(sensor, hour(0), hour(1.5), 2) for sensor in "abcdef"}
    assert rows() == closed

    lost = Checkpoint.of(world.settings, table)
    stores = {file.parent for file in (lost.path / "state").rglob("*.changelog")}
    assert len({store.parent.name if store.name == "sessionWindow" else store.name for store in stores}) >= 3
    for store in stores:
        max(store.glob("*.changelog"), key=lambda file: int(file.name.split(".")[0].split("_")[0])).unlink()

    live = Platform(world.spark, world.lake, world.registry)
    found = Recover(live, table, lambda topic: {0: 0}, world.read).run()
    assert (found.found, found.differing) == ("lost", 0)
    assert found.states
    assert {s.partitions for s in found.states} == {3}

    # The bursts of a, c and e go on, those of b, d and f had their last reading at 3.
    world.append({"readings": [reading("a", 4.5, 1), reading("b", 4.5, 1), reading("c", 9, 1)]})
    world.maintain(["bursts"])
    ended = {("a", hour(3), hour(5.5), 3), ("b", hour(4.5), hour(5.5), 1)}
    ended |= {(sensor, hour(3), hour(4.75), 2) for sensor in "ce"}
    ended |= {(sensor, hour(3), hour(4), 1) for sensor in "bdf"}
    assert rows() == closed | ended
    assert [o for o in world.reconcile(["bursts"]) if o.changed or o.unexplained] == []
