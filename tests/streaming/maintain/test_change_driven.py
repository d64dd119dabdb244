"""A change-driven table applies each change once, whatever was lost in between."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.plant import hour, plant, reading
from tests.support.short_history import NOTHING
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.trim import Trim
from twofold.infra.errors import TwofoldError
from twofold.streaming.driver import table_query
from twofold.streaming.maintain import change_driven
from twofold.streaming.maintain.backlog import Backlog
from twofold.streaming.maintain.change_driven import ChangeDrivenStream
from twofold.streaming.maintain.refresh_pace import Pace
from twofold.streaming.maintain.refresh_turns import Turns
from twofold.streaming.query.progress import read
from twofold.streaming.query.step_shares import Shares
from twofold.tables.declare.table import Table
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.refresh import Refreshed, Refresher
from twofold.tables.refresh.scope import Scope
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.spark

PAIRS_FILE = '''\
"""Each reading with the sum of its sensor's readings in the hour before it."""
from twofold import F, Window, table
from twofold.infra.delta.lake import Lake


@table(primary_key=["sensor", "read_at"], event_time="read_at", recompute_by=["sensor"], depends_within="1 hour")
def {name}(readings):
    seconds = F.col("read_at").cast("long")
    before = Window.partitionBy("sensor").orderBy(seconds).rangeBetween(-3600, 0)
    return readings.select("sensor", "read_at", F.sum("value").over(before).alias("total"))
'''
NAME = "plant.newest"


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """A plant whose table `newest` follows the events."""
    return World(spark, settings, "plant", plant(tmp_path / "plant", newest=PAIRS_FILE.format(name="newest")))


def totals(world: World) -> dict[datetime, float]:
    return {row["read_at"]: row["total"] for row in world.rows(NAME).to_pylist()}


def checkpoint(world: World) -> Checkpoint:
    return Checkpoint.of_table(world.settings, world.registry.find_table(NAME))


def commits(world: World) -> int:
    return world.lake.version(NAME)


def test_it_reads_what_is_new_however_late(world: World) -> None:
    world.append({"readings": [reading("a", 1, 1), reading("a", 5, 2)]})
    world.maintain([NAME])
    assert totals(world) == {hour(1): 1, hour(5): 2}
    world.append({"readings": [reading("a", 0.5, 4)]})
    world.maintain([NAME])
    assert totals(world) == {hour(0.5): 4, hour(1): 5, hour(5): 2}
    [progress] = read(world.settings, "plant")
    assert (progress.query, progress.batch, progress.rows_in, progress.rows_out) == ("newest", 1, 1, 2)


def test_freshness_is_since_the_broker_had_the_newest_record(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    above = '"""As it is."""\nfrom twofold import table\n\n\n@table()\ndef above(newest):\n    return newest\n'
    declared = plant(tmp_path / "plant", newest=PAIRS_FILE.format(name="newest"), above=above)
    world = World(spark, settings, "plant", declared)
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain(["newest", "above"])
    assert {one.freshness_s for one in read(settings, "plant")} == {None}, "the record was there before the tables"
    world.append({"readings": [reading("a", 2, 1)]})
    world.maintain(["newest", "above"])
    appended_s = max(at.timestamp() for at in world.rows("plant.readings")["_appended_at"].to_pylist())
    since_s = time.time() - appended_s
    progress = {one.query: one.freshness_s for one in read(settings, "plant")}
    assert {"newest", "above"} <= progress.keys()
    assert all(s is not None and since_s - 120 < s <= since_s for s in progress.values()), (progress, since_s)


def test_with_nothing_new_it_commits_nothing_and_stays_where_it_is(world: World) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    before = commits(world), checkpoint(world).position
    world.maintain([NAME])
    assert (commits(world), checkpoint(world).position) == before


def test_it_keeps_the_id_of_its_stream_until_the_checkpoint_is_lost(world: World) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    first = checkpoint(world).stream
    world.append({"readings": [reading("a", 2, 1)]})
    world.maintain([NAME])
    assert checkpoint(world).stream == first != ""


def test_a_crash_between_publication_and_note_repeats_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    monkeypatch.setattr(Checkpoint, "take", _crash)
    with pytest.raises(_CrashError):
        world.maintain([NAME])
    monkeypatch.undo()
    published = commits(world)
    assert totals(world) == {hour(1): 1}
    world.maintain([NAME])
    assert (commits(world), totals(world)) == (published, {hour(1): 1})


def test_where_its_position_is_lost_it_recomputes_all(world: World) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    world.append({"readings": [reading("a", 1.5, 1), reading("b", 7, 3)]})
    (checkpoint(world).path / "position").unlink()
    world.maintain([NAME])
    assert totals(world) == {hour(1): 1, hour(1.5): 2, hour(7): 3}


def test_where_the_changes_are_gone_it_recomputes_all(world: World) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    world.append({"readings": [reading("a", 1.5, 1)]})
    table = world.lake.open("plant.readings")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    world.maintain([NAME])
    assert totals(world) == {hour(1): 1, hour(1.5): 2}


def test_what_a_stopped_stream_has_not_read_outlives_a_trim(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Also rows that a compaction has moved, and the commit before them."""
    for minutes in (0, 0.2):
        world.append({"readings": [reading("a", 1 + minutes, 1)]})
    world.lake.open("plant.readings").create_checkpoint()
    world.maintain([NAME])
    for value in (2, 3):
        world.append({"readings": [reading("a", 1.1 * value, value)]})
    world.lake.open("plant.readings").optimize.compact()
    world.lake.open("plant.readings").create_checkpoint()
    assert Trim(world.lake, "plant.readings", NOTHING).now().files == 1
    world.maintain([NAME])
    assert totals(world) == {hour(1): 1, hour(1.2): 2, hour(2.2): 3, hour(3.3): 3}
    assert "changes are gone" not in caplog.text


def test_a_failure_ends_it_and_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    monkeypatch.setattr(Refresher, "publish", _crash)
    platform = Platform(world.spark, world.lake, world.registry)
    following = table_query(platform, world.registry.find_table(NAME)).start(available_now=False)
    with pytest.raises(_CrashError):
        following.awaitTermination()
    assert (following.isActive, type(following.exception())) == (False, _CrashError)
    following.stop()


class Inputs:
    """A backlog that says whether the inputs fill, and counts rows as the real one does."""

    def __init__(self, world: World) -> None:
        self._backlog, self.fill = Backlog(world.lake, world.registry), False
        self.next_version, self.rows = self._backlog.next_version, self._backlog.rows
        self.note_read = self._backlog.note_read

    def before_streams(self, table: Table) -> float:
        return math.inf if self.fill else 0

    def arrived(self, name: str, within_s: float) -> int:
        return 0


def test_in_a_driver_it_waits_while_its_inputs_fill(world: World) -> None:
    inputs = Inputs(world)
    inputs.next_version("plant.readings")
    pace = Pace(cast(Any, inputs), Turns(1, lambda: False), Shares(1_000))
    following = table_query(Platform(world.spark, world.lake, world.registry), world.registry.find_table(NAME))
    assert isinstance(following, ChangeDrivenStream)
    following.step(pace)
    inputs.fill = True
    for number in (1, 2, 3):
        world.append({"readings": [reading("a", 3 * number, 1)]})
        assert not following.step(pace)
    inputs.fill = False
    before = commits(world)
    assert following.step(pace)
    assert (commits(world), totals(world)) == (before + 1, {hour(3): 1, hour(6): 1, hour(9): 1})
    assert not following.step(pace)
    assert world.spark.sparkContext.getLocalProperty("spark.scheduler.pool") == NAME


def test_a_change_of_most_of_hundreds_of_scopes_is_recomputed_as_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[Scope]] = []
    publish = Refresher.publish

    def noted(self: Refresher, scopes: Sequence[Scope], info: Mapping[str, object], *, check: bool) -> Refreshed:
        asked.append(scopes)
        return publish(self, scopes, info, check=check)

    monkeypatch.setattr(Refresher, "publish", noted)
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    sensors = [f"s{number:03}" for number in range(600)]
    world.append({"readings": [reading(sensor, 1, 2) for sensor in sensors]})
    world.maintain([NAME])
    assert [len(scopes) for scopes in asked] == [1, 1]
    assert sorted(row["sensor"] for row in world.rows(NAME).to_pylist()) == ["a", *sensors]
    world.append({"readings": [reading(sensor, 1 + 48 * n, 3) for n, sensor in enumerate(sensors[:10])]})
    world.maintain([NAME])
    assert len(asked[2]) == 10


def test_a_commit_too_large_for_this_process_is_not_loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append({"readings": [reading("a", 1, 1)]})
    world.maintain([NAME])
    world.settings = replace(world.settings, small_rows=1)
    world.lake = Lake(world.settings)
    monkeypatch.setattr(change_driven, "CHANGED", 2)
    world.append({"readings": [reading("a", 1.5, 1)]})
    world.maintain([NAME])
    monkeypatch.setattr(change_driven, "changed_rows", _crash)
    world.append({"readings": [reading("b", at, 1) for at in (1, 4, 7)]})
    world.maintain([NAME])
    assert totals(world) == {hour(1): 1, hour(1.5): 2, hour(4): 1, hour(7): 1}


class _CrashError(TwofoldError):
    """A test's."""


def _crash(*_: object, **__: object) -> None:
    raise _CrashError("The test says so.", hint="")
