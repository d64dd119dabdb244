"""A table as of a point of the log has the rows of the records before it, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.plant import DAYS_FILE, HOURS_FILE, hour, plant, reading
from tests.tables.declared import edited
from twofold.batch.as_of import FINAL, AsOf
from twofold.batch.offset_selection import LogPosition
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "plant.readings"
TABLES = ["hours", "days", "newest"]
LAST = edited(
    HOURS_FILE.format(name="last", late="correct"),
    'primary_key=["sensor", "hour"]',
    'primary_key=["sensor"],\n    sequence_by=["hour"]',
)
"""The last hour of each sensor."""


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Offsets 0 to 3, then 4 to 6 of which one is late for the hour 1, all maintained and reconciled."""
    folder = tmp_path_factory.mktemp("as_of")
    settings = Settings(home=folder / "home", shuffle_partitions=1)
    world = World(spark, settings, "plant", plant(folder / "plant", days=DAYS_FILE, last=LAST))
    world.append({"readings": [reading("a", at, 1) for at in (0, 1, 2, 5)]})
    world.maintain(TABLES)
    world.append({"readings": [reading("a", 1.5, 10), reading("b", 2.5, 3), reading("a", 6, 1)]})
    world.maintain(TABLES)
    world.reconcile(TABLES)
    return world


def as_of(world: World, name: str, before: Mapping[str, LogPosition]) -> list[dict[str, object]]:
    platform = Platform(world.spark, world.lake, world.registry)
    rows = AsOf(platform, before).rows(world.registry.find_table(name)).toArrow().to_pylist()
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


def appended_at(world: World, offset: int) -> datetime:
    [instant] = [r["_appended_at"] for r in world.rows(TOPIC).to_pylist() if r["_offset"] == offset]
    return instant


@pytest.mark.parametrize("by_time", [False, True])
def test_what_arrived_later_is_not_in_it(world: World, by_time: bool) -> None:
    before: dict[str, LogPosition] = {TOPIC: appended_at(world, 4) if by_time else {0: 4}}
    hours = [(r["sensor"], r["hour"], r["total"], r[FINAL]) for r in as_of(world, "hours", before)]
    # The newest event is of 5:00, and the stream waits an hour: what closes before 4:00 was final.
    assert hours == [
        ("a", hour(0), 1, True),
        ("a", hour(1), 1, True),
        ("a", hour(2), 1, True),
        ("a", hour(5), 1, False),
    ]
    assert [(r["sensor"], r["total"]) for r in as_of(world, "days", before)] == [("a", 4)]


def test_of_all_records_it_is_the_table_as_it_is(world: World) -> None:
    for name in TABLES:
        rows = as_of(world, name, {TOPIC: {0: 7}})
        for row in rows:
            row.pop(FINAL)
        assert rows == sorted(world.rows(f"plant.{name}").to_pylist(), key=lambda row: tuple(map(str, row.values()))), (
            name
        )


def test_of_the_rows_of_a_key_the_last_closed_one_stays(world: World) -> None:
    # As above: what closes before 4:00 was final, and of `b` nothing had come.
    assert [(r["hour"], r[FINAL]) for r in as_of(world, "last", {TOPIC: {0: 4}})] == [(hour(2), True)]
    # By then the hour of `a` at 5:00 was open, too, and that of `b` had closed at 3:00.
    found = as_of(world, "last", {TOPIC: {0: 7}})
    assert [(r["sensor"], r["hour"], r[FINAL]) for r in found] == [("a", hour(2), True), ("b", hour(2), True)]


def test_of_no_record_it_is_empty(world: World) -> None:
    assert as_of(world, "hours", {TOPIC: {0: 0}}) == []


def test_offsets_of_other_topics_are_refused(world: World) -> None:
    with pytest.raises(BadArgument, match=r"computed from plant.readings; offsets were given of none"):
        as_of(world, "days", {})
