"""A changed definition is noticed, accepted by a backfill of all rows, and never mixed with the old one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import rewrites
from tests.plant import HOURS_FILE, hour, plant, reading
from tests.tables.declared import edited
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.reconcile import reconcile_tables
from twofold.infra.errors import BadArgument, DefinitionChanged
from twofold.infra.instants import Interval, epoch_ms
from twofold.infra.project.settings import Settings
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.refresh import Refresher
from twofold.tables.refresh.scope import everything
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

OLD = HOURS_FILE.format(name="hours", late="correct")
# Sensor `b` is not wanted any more, and 5 more of each hour of the others.
NEW = edited(
    edited(OLD, '"value < 100"', "\"value < 100 AND sensor <> 'b'\""), 'F.sum("value")', '(F.sum("value") + 5)'
)


def a_world(spark: SparkSession, settings: Settings, folder: Path, text: str) -> World:
    return World(spark, settings, "plant", plant(folder, hours=text))


def totals(world: World, table: str = "plant.hours") -> dict[tuple[str, datetime], float]:
    rows = world.rows(table).to_pylist()
    return {(row["sensor"], row["hour"]): row["total"] for row in rows}


def backfill(world: World, interval: Interval | None = None) -> RunResult:
    table = world.registry.find_table("hours")
    return rewrites.backfill(Platform(world.spark, world.lake, world.registry), table, interval)


READINGS = [reading(sensor, at, at) for at in (0, 1, 2, 3, 8) for sensor in ("a", "b")]
LAST = reading("a", 8.5, 9)


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Rows by the old definition: the hours 0 to 3 are closed, 8 is open."""
    folder = tmp_path_factory.mktemp("before")
    before = a_world(spark, Settings(home=folder / "home", shuffle_partitions=1), folder / "old", OLD)
    for readings in (READINGS, [LAST]):
        before.append({"readings": readings})
        before.maintain(["hours"])
    assert totals(before)["b", hour(8)] == 8
    return before


@pytest.fixture
def changed(before: World, settings: Settings, tmp_path: Path) -> World:
    """The same in a home of its own, where the definition has changed since."""
    copy = before.copied_to(settings)
    after = a_world(copy.spark, settings, tmp_path / "new", NEW)
    after.log.update(copy.log)
    return after


def test_nothing_of_a_new_definition_is_added_to_rows_of_an_old_one(changed: World) -> None:
    rows = totals(changed)
    for attempt in (
        lambda: changed.maintain(["hours"]),
        lambda: changed.reconcile(["hours"]),
        lambda: backfill(changed, Interval(0, 2**42)),
    ):
        with pytest.raises(DefinitionChanged, match=r"\./twofold backfill plant.hours"):
            attempt()
    assert totals(changed) == rows


def test_a_backfill_of_all_rows_accepts_the_new_definition(changed: World) -> None:
    outcome = backfill(changed)
    assert (outcome.cause, outcome.updated, outcome.deleted) == ("definition", 4, 4)
    changed.maintain(["hours"])
    expected = {("a", hour(n)): n + 5.0 for n in (0, 1, 2, 3)} | {("a", hour(8)): 22.0}
    assert totals(changed) == expected, "rows of the old definition are left"
    assert [o.changed for o in changed.reconcile(["hours"])] == [0]
    assert unexplained_changes(changed.lake, changed.registry.find_table("hours")) == 0
    assert (backfill(changed).cause, backfill(changed).changed) == ("backfill", 0)


CLOSING = 'F.col("window.end").alias("closes_at")'
OTHER_COLUMNS = {
    "no closing time": edited(edited(NEW, f"{CLOSING}, ", ""), '    closes_at="closes_at",\n', ""),
    "another closing time": edited(edited(NEW, CLOSING, 'F.col("window.end").alias("ends")'), '"closes_at"', '"ends"'),
}


@pytest.mark.parametrize(
    ("kind", "has_rows"),
    [
        ("no closing time", True),
        pytest.param("another closing time", True, marks=pytest.mark.prove),
        pytest.param("no closing time", False, marks=pytest.mark.prove),
    ],
)
def test_a_backfill_of_all_rows_accepts_a_definition_of_other_columns(
    spark: SparkSession, before: World, settings: Settings, tmp_path: Path, kind: str, has_rows: bool
) -> None:
    if has_rows:
        before.copied_to(settings)
    else:
        a_world(spark, settings, tmp_path / "old", OLD)
    after = a_world(spark, settings, tmp_path / "new", OTHER_COLUMNS[kind])
    outcome = backfill(after)
    assert (outcome.cause, outcome.deleted > 0) == ("definition", has_rows)
    if not has_rows:
        after.append({"readings": [*READINGS, LAST]})
    after.maintain(["hours"])
    assert totals(after) == {("a", hour(n)): n + 5.0 for n in (0, 1, 2, 3)} | {("a", hour(8)): 22.0}
    assert [o.changed for o in after.reconcile(["hours"])] == [0]
    assert (backfill(after).cause, backfill(after).changed) == ("backfill", 0)
    assert "closes_at" not in after.rows("plant.hours").column_names


def test_a_backfill_counts_what_it_compared_and_refuses_an_empty_range(changed: World) -> None:
    backfill(changed)
    found = backfill(changed, Interval(epoch_ms(hour(0)) or 0, epoch_ms(hour(2)) or 0))
    assert (found.changed, found.compared) == (0, 2)
    with pytest.raises(BadArgument, match=r"No row was compared: plant\.hours has rows dated 2013-01-01 00:00"):
        backfill(changed, Interval(0, 1_000))


def test_the_stream_of_a_new_definition_starts_again_once(changed: World) -> None:
    checkpoint = Checkpoint.of_table(changed.settings, changed.registry.find_table("hours"))
    old = checkpoint.stream
    backfill(changed)
    changed.maintain(["hours"])
    new = checkpoint.stream
    assert new not in ("", old)
    changed.append({"readings": [reading("a", 12, 1)]})
    changed.maintain(["hours"])
    assert checkpoint.stream == new
    assert totals(changed)["a", hour(12)] == 6


def test_a_micro_batch_of_the_old_code_does_not_commit_behind_its_end(
    before: World, changed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, asleep = replace(before, settings=changed.settings), list[tuple[Any, ...]]()
    upsert = QueryDrivenStream._upsert

    def fall_asleep(*micro_batch: Any) -> None:
        asleep.append(micro_batch)
        raise KeyError("asleep")

    old.append({"readings": [reading("a", 12, 1), reading("b", 12, 1)]})
    with monkeypatch.context() as sleeping:
        sleeping.setattr(QueryDrivenStream, "_upsert", fall_asleep)
        with pytest.raises(Exception, match="asleep"):
            old.maintain(["hours"])
    backfill(changed)
    version = changed.lake.version("plant.hours")
    with pytest.raises(DefinitionChanged):
        upsert(*asleep[0])
    assert changed.lake.version("plant.hours") == version
    changed.maintain(["hours"])
    assert totals(changed)["a", hour(12)] == 6
    assert ("b", hour(12)) not in totals(changed)
    assert [o.unexplained for o in changed.reconcile(["hours"], verify=True)] == [0]


def test_a_refresh_of_the_old_code_does_not_commit_behind_its_end(before: World, changed: World) -> None:
    table = before.registry.find_table("hours")
    refresher = Refresher(before.spark, changed.lake, before.registry, table)
    backfill(changed)
    with pytest.raises(DefinitionChanged):
        refresher.publish(everything(table), {}, check=False)


def test_a_definition_that_says_the_same_is_accepted_without_a_change(
    before: World, settings: Settings, tmp_path: Path
) -> None:
    copy = before.copied_to(settings)
    after = a_world(copy.spark, settings, tmp_path / "new", edited(OLD, '"value < 100"', '"100 > value"'))
    with pytest.raises(DefinitionChanged):
        after.maintain(["hours"])
    rows = totals(copy)
    outcome = backfill(after)
    assert (outcome.cause, outcome.changed) == ("definition", 0)
    after.maintain(["hours"])
    assert totals(after) == rows


def test_reconcile_corrects_the_others_and_names_changed_ones(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    other = HOURS_FILE.format(name="other", late="correct")
    before = World(spark, settings, "plant", plant(tmp_path / "old", other=other))
    for readings in ([reading("a", at, at) for at in (0, 1, 2, 8)], [reading("a", 0.5, 7)]):
        before.append({"readings": readings})
        before.maintain(["hours", "other"])
    after = World(spark, settings, "plant", plant(tmp_path / "new", hours=NEW, other=other))
    platform = Platform(spark, after.lake, after.registry)
    with pytest.raises(DefinitionChanged, match=r"plant\.hours: its rows were computed by the definition "):
        reconcile_tables(platform, after.registry.chosen(["plant.hours", "plant.other"]))
    assert totals(after)["a", hour(0)] == 0
    assert totals(after, "plant.other")["a", hour(0)] == 7
