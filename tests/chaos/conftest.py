"""Fixtures of tests in which a Spark server is killed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.late_reading import TOPIC, damage
from twofold.testing.worlds import World


@pytest.fixture(scope="session")
def misread(late_reading: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A reading is late, another was misread once, and the row of a third is wrong."""
    home = tmp_path_factory.mktemp("misread") / "home"
    world = late_reading.copied_to(replace(late_reading.settings, home=home))
    damage(world, TOPIC, {"value": "value + 100"}, "_offset = 1")
    damage(world, "plant.hours", {"total": "1005.0"}, "sensor = 'b' AND total = 5.0")
    return world
