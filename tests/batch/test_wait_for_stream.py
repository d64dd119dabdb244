"""Reconcile leaves pending rows to a running stream, and waits for no stopped one."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.plant import DAYS_FILE, plant, reading
from tests.tables.declared import edited
from twofold.infra.process.file_locks import exclusive
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings


@pytest.mark.spark
def test_only_a_table_whose_stream_runs_is_waited_for(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = edited(DAYS_FILE, "days", "sums")
    world = World(spark, settings, "plant", plant(tmp_path / "plant", days=DAYS_FILE, sums=sums))
    world.append({"readings": [reading("a", at, 1) for at in range(6)]})
    world.maintain(["hours"])
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        world.maintain(["days"])

    monkeypatch.setattr("twofold.batch.pinned_versions.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with exclusive(settings.driver_lock("plant")), exclusive(settings.stream_lock("plant.days")):
        [outcome] = world.reconcile(["days"])
        assert (len(waited), outcome.changed) == (1, 0), "the stream was about to write it"
        [outcome] = world.reconcile(["sums"])
        assert (len(waited), outcome.changed) == (1, 1), "the driver does not keep it"
    assert world.rows("plant.days").to_pylist() == world.rows("plant.sums").to_pylist()
