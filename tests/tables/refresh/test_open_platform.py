"""Tests of the work that a driver does once when it starts on a domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tables.declared import TOPIC_FILE, edited, written
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import ensure_topics_of, opened

STATISTICS = "delta.dataSkippingStatsColumns"
DECIMAL_KEY = edited(TOPIC_FILE, '"sensor": "string"', '"sensor": "decimal(20,0)"')


@pytest.mark.parametrize(("runs_streams", "is_left"), [(True, False), (False, True)])
def test_a_driver_takes_out_untrue_bounds_and_a_command_does_not(
    settings: Settings, tmp_path: Path, runs_streams: bool, is_left: bool
) -> None:
    registry, lake = load(written(tmp_path / "declared", {"plant/readings.py": DECIMAL_KEY})), Lake(settings)
    ensure_topics_of(lake, registry, "plant")
    lake.open("plant.readings").alter.set_table_properties({STATISTICS: "sensor,read_at"})
    with opened(settings, "test", ["plant"], runs_streams=runs_streams, registry=registry):
        names = lake.open("plant.readings").metadata().configuration[STATISTICS].split(",")
    assert ("sensor" in names) == is_left
