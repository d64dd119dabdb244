"""A new field of a topic: events get the column, streams continue, a replay adds refused records."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.plant import START, plant
from tests.rewrites import replay
from tests.tables.declared import TOPIC_FILE, edited
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import SchemaMismatch
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

NEWEST_FILE = '''\
"""The newest reading of each sensor."""
from twofold import table


@table(primary_key=["sensor"], sequence_by=["read_at"], recompute_by=["sensor"])
def latest(readings):
    return readings.select("sensor", "read_at", "value")
'''
PLACES_FILE = '''\
"""Where each sensor stands."""
from twofold import table


@table(primary_key=["sensor"], sequence_by=["read_at"], recompute_by=["sensor"])
def places(readings):
    return readings.select("sensor", "read_at", "place")
'''
FIELD = '"value": "double?"'


def declared(folder: Path, fields: str = FIELD, **more: str) -> Registry:
    return plant(folder, readings=edited(TOPIC_FILE, FIELD, fields), newest=NEWEST_FILE, **more)


def reading(sensor: str, hour: int, **fields: Any) -> bytes:
    read_at = (START + timedelta(hours=hour)).isoformat()
    return json.dumps({"sensor": sensor, "read_at": read_at, **fields}).encode()


@pytest.fixture
def before(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """Two sensors, one of which tells its place, a field that nobody has declared."""
    world = World(spark, settings, "plant", declared(tmp_path / "before"))
    told = [reading("a", hour, value=1.0) for hour in range(8)]
    world.append({"readings": told + [reading("b", hour, value=2.0, place="hall") for hour in range(8)]})
    world.maintain(["hours"])
    return world


def with_place(before: World, folder: Path) -> World:
    registry = declared(folder, fields=f'{FIELD}, "place": "string?"', places=PLACES_FILE)
    return World(before.spark, before.settings, "plant", registry, before.log)


def places(world: World) -> dict[str, str | None]:
    return {row["sensor"]: row["place"] for row in world.rows("plant.places").to_pylist()}


def test_a_new_field_lets_streams_go_on_and_is_replayed(
    before: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = before.rows("plant.hours").num_rows
    assert before.lake.rows("plant.readings_quarantine") == 8
    after = with_place(before, tmp_path / "after")
    after.append({"readings": [reading("a", hour, value=1.0, place="yard") for hour in range(8, 12)]})
    after.maintain(["hours", "places"])

    assert after.rows("plant.hours").num_rows == hours + 4
    assert places(after) == {"a": "yard"}
    assert sorted(after.rows("plant.readings")["place"].to_pylist(), key=str) == [None] * 8 + ["yard"] * 4

    monkeypatch.setattr("twofold.batch.rewrite.replay.Log", lambda *_: after)
    platform = Platform(after.spark, after.lake, after.registry)
    replay(platform, after.registry.topics["plant.readings"])

    assert places(after) == {"a": "yard", "b": "hall"}
    assert after.lake.rows("plant.readings_quarantine") == 0
    assert [o for o in after.reconcile(["hours", "places"]) if o.changed] == []
    assert not any(o.changed for o in replay(platform, after.registry.topics["plant.readings"]))


def test_a_field_of_another_type_is_refused_before_anything_is_written(before: World, tmp_path: Path) -> None:
    version = before.lake.version("plant.readings")
    registry = declared(tmp_path / "after", fields='"value": "string?", "place": "string?"')
    with pytest.raises(SchemaMismatch, match="the column value is declared as string, and its rows have double"):
        World(before.spark, before.settings, "plant", registry, before.log)
    assert Lake(before.settings).version("plant.readings") == version
