"""A rebuilt table equals the live one and replaces it in one commit that can be rolled back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shutil import rmtree as remove
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.plant import DAYS_FILE, DOUBLED_HOURS, HOURS, WIDER_HOURS, hour, plant, reading
from tests.rewrites import promote, rollback
from tests.support.short_history import trim_to_the_newest
from tests.tables.declared import bound_as, edited
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RUNS
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.rewrite.promotion import Promotion
from twofold.infra.delta.delta_writer import Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.errors import BadArgument
from twofold.infra.offset_ranges import Ranges
from twofold.infra.project.settings import Settings
from twofold.streaming.driver import table_query
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.shadow_lake import drop, is_stale, shadow
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAME = "plant.hours"
BOTH = ["hours", "days"]


def a_world(spark: SparkSession, settings: Settings, folder: Path, hours: str, days: str = DAYS_FILE) -> World:
    return World(spark, settings, "plant", plant(folder, hours=hours, days=days))


def changed(before: World, folder: Path, hours: str, days: str = DAYS_FILE) -> World:
    """The same lake and log under another definition."""
    after = a_world(before.spark, before.settings, folder, hours, days)
    after.log.update(before.log)
    return after


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The hours 0, 1, 2 are closed, the hour 1 was corrected for a late record; 5 and 6 are open."""
    folder = tmp_path_factory.mktemp("before")
    world = a_world(spark, Settings(home=folder / "home", shuffle_partitions=1), folder / "old", HOURS)
    world.append({"readings": [reading("a", at, 1) for at in (0, 1, 2, 5)]})
    world.maintain(BOTH)
    world.append({"readings": [reading("a", 1.5, 10), reading("b", 2.5, 3), reading("a", 6, 1)]})
    world.maintain(BOTH)
    world.reconcile(BOTH)
    return world


@pytest.fixture
def world(before: World, settings: Settings) -> World:
    """The same, in a home of its own."""
    return before.copied_to(settings)


def rebuild(world: World, name: str = "hours") -> Promotion:
    """What the command does, but for where it reads the log."""
    live = Platform(world.spark, world.lake, world.registry)
    return rebuild_in_shadow(live, world.registry.find_table(name), world, reingest)


def totals(world: World) -> Mapping[tuple[str, datetime], float]:
    return {(row["sensor"], row["hour"]): row["total"] for row in world.rows(NAME).to_pylist()}


def test_what_the_log_gives_again_is_what_the_live_table_has(world: World) -> None:
    """But for open rows, which are the stream's, whatever they say."""
    DeltaTable(world.lake.uri(NAME)).update(updates={"total": "99"}, predicate="hour >= '2013-01-01T05:00:00Z'")
    promotion = rebuild(world)
    assert promotion.changes.isEmpty()
    assert promote(promotion).compared == 4, "what closes from hour 5 on is the stream's"


def test_a_table_of_a_table_is_created_again_with_what_it_reads(world: World) -> None:
    promotion = rebuild(world, "days")
    assert (promotion.changes.isEmpty(), promote(promotion).compared) == (True, 2)


def test_a_promotion_leaves_what_has_arrived_since_and_can_be_taken_back(world: World) -> None:
    DeltaTable(world.lake.uri(NAME)).update(updates={"total": "total + 1"}, predicate="total IN (3, 11)")
    promotion = rebuild(world)
    world.append({"readings": [reading("a", 3.5, 1)]})
    outcome = promote(promotion)
    assert (outcome.cause, outcome.updated, outcome.changed) == ("rebuild", 1, 1)
    assert (totals(world)["a", hour(1)], totals(world)["b", hour(2)]) == (11, 4)
    version = world.lake.version(NAME)
    assert promote(Promotion(promotion.live, promotion.shadow, promotion.table)).changed == 0
    assert world.lake.version(NAME) == version
    trim_to_the_newest(world.lake, NAME)
    undone = rollback(promotion.live, promotion.table)
    assert (undone.cause, undone.updated, totals(world)["a", hour(1)]) == ("rollback", 1, 12)
    with pytest.raises(BadArgument, match="taken back already"):
        rollback(promotion.live, promotion.table)


def test_any_run_is_taken_back_by_rows_and_what_streams_wrote_since_stays(world: World) -> None:
    live, table = Platform(world.spark, world.lake, world.registry), world.registry.find_table("hours")
    world.append({"readings": [reading("a", 6.7, 2), reading("c", 6.8, 1)]})
    world.maintain(["hours"])
    [run] = [row for row in world.rows(RUNS).to_pylist() if (row["table"], row["cause"]) == (NAME, "late")]
    undone = rollback(live, table, run["run"])
    assert (undone.cause, undone.changed) == ("rollback", run["updated"] + run["inserted"])
    found = totals(world)
    assert (found["a", hour(1)], found["a", hour(6)], found["c", hour(6)]) == (1, 3, 1)
    with pytest.raises(BadArgument, match=r"plant\.hours has late-.* taken back already"):
        rollback(live, table, run["run"])
    with pytest.raises(BadArgument, match=r"plant\.hours has no run late-0 that changed it"):
        rollback(live, table, "late-0")
    with pytest.raises(BadArgument, match="was never promoted"):
        rollback(live, table)


def test_a_new_definition_goes_live_while_the_old_one_keeps_serving(world: World, tmp_path: Path) -> None:
    served = totals(world)
    after = changed(world, tmp_path / "new", DOUBLED_HOURS)
    promotion = rebuild(after)
    assert totals(world) == served
    assert promotion.changes.count() == 4
    assert promote(promotion).cause == "definition"
    after.append({"readings": [reading("a", 6.5, 4)]})
    after.maintain(BOTH)
    closed = {("a", hour(0)): 2.0, ("a", hour(1)): 22.0, ("a", hour(2)): 2.0, ("b", hour(2)): 6.0}
    assert totals(after) == {**closed, ("a", hour(5)): 2.0, ("a", hour(6)): 10.0}


@pytest.mark.parametrize("name", ["hours", "days"])
def test_a_stream_of_the_old_definition_ends_when_the_new_one_is_promoted(
    world: World, tmp_path: Path, name: str
) -> None:
    old = table_query(Platform(world.spark, world.lake, world.registry), world.registry.find_table(name))
    following = old.start(available_now=False)
    after = changed(world, tmp_path / "new", DOUBLED_HOURS, edited(DAYS_FILE, 'F.sum("total")', '(F.sum("total") * 3)'))
    if name == "days":
        promote(rebuild(after, "hours"))
    promote(rebuild(after, name))
    before = after.lake.version(f"plant.{name}")
    world.append({"readings": [reading("a", 6.2, 1), reading("b", 9, 1)]})
    if name == "days":
        after.maintain(["hours"])
    with pytest.raises(Exception, match=r"its rows were computed by the definition"):
        following.awaitTermination()
    assert after.lake.version(f"plant.{name}") == before


def test_a_new_column_goes_live_and_can_be_taken_back(world: World, tmp_path: Path) -> None:
    served = sorted(world.rows(NAME).to_pylist(), key=str)
    after = changed(world, tmp_path / "new", WIDER_HOURS)
    promotion = rebuild(after)
    assert promotion.changes.isEmpty(), "in the columns that both have"
    promote(promotion)
    after.maintain(BOTH)
    assert {(r["sensor"], r["hour"]): r["n"] for r in after.rows(NAME).to_pylist()} == {
        ("a", hour(0)): 1,
        ("a", hour(1)): 2,
        ("a", hour(2)): 1,
        ("b", hour(2)): 1,
        ("a", hour(5)): 1,
        ("a", hour(6)): 1,
    }
    assert unexplained_changes(after.lake, promotion.table) == 0
    trim_to_the_newest(world.lake, NAME)
    rollback(promotion.live, promotion.table)
    world.maintain(BOTH)
    assert sorted(world.rows(NAME).to_pylist(), key=str) == served
    assert unexplained_changes(world.lake, world.registry.find_table("hours")) == 0


def test_a_rebuild_that_was_cut_short_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []

    def note(topic: object, ranges: Ranges) -> object:
        read.append(ranges[0])
        if len(read) == 2:
            raise KeyboardInterrupt
        return World.read(world, topic, ranges)  # type: ignore[arg-type]

    monkeypatch.setattr(world, "read", note)
    monkeypatch.setattr(world, "lake", Lake(replace(world.settings, max_offsets=3)))
    with pytest.raises(KeyboardInterrupt):
        rebuild(world)
    assert rebuild(world).changes.isEmpty()
    # The newest micro-batch is read once more, since its quarantine may be missing.
    assert read == [(0, 2), (2, 4), (0, 2), (2, 4), (4, 7)]


def test_a_large_micro_batch_that_was_cut_short_is_whole_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append({"readings": [reading("a", 6.5, 1), b"{", reading("a", 6.6, 1)]})
    monkeypatch.setattr(world, "lake", Lake(replace(world.settings, small_rows=1)))
    commit = Writer._commit

    def die_at_the_quarantine(writer: Writer, *arguments: object) -> object:
        if writer.name.endswith(QUARANTINE):
            raise KeyboardInterrupt
        return commit(writer, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as cut:
        cut.setattr(Writer, "_commit", die_at_the_quarantine)
        with pytest.raises(KeyboardInterrupt):
            rebuild(world)
    lake = rebuild(world).shadow.lake
    assert [lake.rows(name) for name in ("plant.readings", "plant.readings" + QUARANTINE)] == [9, 1]


def test_a_promotion_that_died_before_it_was_noted_is_noted_by_the_next(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = changed(world, tmp_path / "new", DOUBLED_HOURS)
    version = after.lake.version(NAME)
    promotion, record_run = rebuild(after), Ledgers.record_run

    def die(ledgers: Ledgers, *arguments: Any) -> None:
        if ledgers._lake is promotion.live.lake:
            raise KeyboardInterrupt
        record_run(ledgers, *arguments)

    with monkeypatch.context() as cut:
        cut.setattr(Ledgers, "record_run", die)
        with pytest.raises(KeyboardInterrupt):
            promote(promotion)
    assert promote(rebuild(after)).updated == 4, "what it began"
    [run] = [row for row in after.rows(RUNS).to_pylist() if row["cause"] == "definition"]
    assert (run["updated"], run["version_before"], run["version_after"]) == (4, version, version + 2)


def test_a_shadow_that_was_half_removed_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.registry.find_table("hours")
    aside = rebuild(world).shadow.lake
    with monkeypatch.context() as cut:
        cut.setattr(shutil, "rmtree", _die_half_way)
        with pytest.raises(KeyboardInterrupt):
            drop(world.settings, table)
    assert not aside.exists(NAME)
    assert rebuild(world).changes.isEmpty()
    drop(world.settings, table)
    assert list((world.settings.home / "shadow").iterdir()) == []


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def _die_half_way(folder: Path, ignore_errors: bool = False) -> None:
    """Take the tables of a shadow away, but not its checkpoints."""
    if (folder / "lake").exists():
        remove(folder / "lake")
        raise KeyboardInterrupt


def test_a_shadow_of_another_definition_is_known_as_such(world: World, tmp_path: Path) -> None:
    rebuild(world)
    after = changed(world, tmp_path / "new", DOUBLED_HOURS)
    live, table = Platform(after.spark, after.lake, after.registry), after.registry.find_table("hours")
    assert is_stale(shadow(live, table))
    drop(after.settings, table)
    assert not is_stale(shadow(live, table))
    strict = {name: bound_as(replace(topic, max_bytes=10), topic.name) for name, topic in after.registry.topics.items()}
    registry = Registry(strict, after.registry.tables)
    rebuild(after)
    assert is_stale(shadow(Platform(after.spark, after.lake, registry), table)), "records are decoded otherwise"
