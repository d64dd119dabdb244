"""A stream whose checkpoint or state was lost goes on from one that is made again and gives the same rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.test_cleaned_logs import clean
from tests.plant import DAYS_FILE, HOURS_FILE, hour, plant, reading
from tests.tables.declared import edited
from twofold.batch.reconcile import correct
from twofold.infra.errors import BadArgument, UnexplainedDifference
from twofold.infra.project.settings import Settings
from twofold.streaming.rebuild.lost_state import Recover, Recovery
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ALARMS_FILE = '''\
"""Alarms of sensors."""
from twofold import Topic

TOPIC = Topic(
    schema={"alarm": "string", "sensor": "string", "raised_at": "timestamp"},
    event_time="raised_at",
    message_key="sensor",
    dedup_keys=["alarm"],
)
'''
ALARMED_FILE = '''\
"""Readings with the alarms of their sensor within the hour that follows."""
from twofold import F, table


@table(
    primary_key=["alarm", "read_at"],
    event_time="read_at",
    watermark="1 hour",
    closes_at="closes_at",
    recompute_by=["sensor"],
    depends_within="1 hour",
)
def alarmed(readings, alarms):
    r, a = readings.alias("r"), alarms.alias("a")
    end = F.col("r.read_at") + F.expr("INTERVAL 1 HOUR")
    near = (F.col("r.sensor") == F.col("a.sensor")) & F.col("a.raised_at").between(F.col("r.read_at"), end)
    return r.join(a, near).select("a.alarm", "r.sensor", "r.read_at", "r.value", end.alias("closes_at"))
'''
WATCHED_FILE = edited(
    edited(edited(ALARMED_FILE, "alarmed", "watched"), "r.join(a, near)", 'r.join(a, near, "left")'),
    'primary_key=["alarm", "read_at"]',
    'primary_key=["sensor", "read_at", "alarm"]',
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    folder = tmp_path_factory.mktemp("plant")
    twice = edited(HOURS_FILE.format(name="kept", late="drop"), 'F.sum("value")', 'F.sum(F.col("value") * 2)')
    joined = {"alarmed": ALARMED_FILE, "watched": WATCHED_FILE}
    return plant(folder, alarms=ALARMS_FILE, days=DAYS_FILE, kept=twice, **joined)


def alarm(name: str, at: float) -> bytes:
    return json.dumps({"alarm": name, "sensor": "a", "raised_at": hour(at).isoformat()}).encode()


@pytest.fixture(scope="module")
def before(spark: SparkSession, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three starts of the streams: the hours 0, 1, 2 are closed, 1 was corrected; 5 and 6 are open.

    The table `kept` is `hours` with every reading counted twice.
    """
    home = tmp_path_factory.mktemp("before") / "home"
    world = World(spark, Settings(home=home, shuffle_partitions=1), "plant", registry)
    for records in (
        {"readings": [reading("a", at, 1) for at in (0, 1, 2)], "alarms": [alarm("x", 2.25)]},
        {"readings": [reading("a", 5, 1), reading("b", 2.5, 3)], "alarms": [alarm("y", 5.5)]},
        {"readings": [reading("a", 1.5, 10), reading("a", 6, 1)], "alarms": [alarm("z", 6)]},
    ):
        world.append(records)
        world.maintain(["hours", "kept", "alarmed", "watched"])
    world.reconcile(["hours"])
    world.maintain(["newest", "days"])
    return world


@pytest.fixture
def world(before: World, settings: Settings) -> World:
    """The same, in a home of its own."""
    return before.copied_to(settings)


def checkpoint(world: World, name: str) -> Checkpoint:
    return Checkpoint.of_table(world.settings, world.registry.find_table(name))


def recover(world: World, name: str, **how: Any) -> Recovery:
    live = Platform(world.spark, world.lake, world.registry)
    return Recover(live, world.registry.find_table(name), lambda topic: {0: 0}, world.read, correct).run(**how)


def append_more(world: World) -> None:
    """Records for open rows, for new ones, and one that the lost stream has seen."""
    more = [reading("a", 6.5, 4), reading("a", 6, 1), reading("a", 9, 2)]
    world.append({"readings": more, "alarms": [alarm("w", 6.25), alarm("v", 9.5)]})


def totals(world: World) -> Mapping[tuple[str, datetime], float]:
    return {(row["sensor"], row["hour"]): row["total"] for row in world.rows("plant.hours").to_pylist()}


CLOSED = {("a", hour(0)): 1.0, ("a", hour(1)): 11.0, ("a", hour(2)): 1.0, ("b", hour(2)): 3.0}
GONE_ON = {**CLOSED, ("a", hour(5)): 1.0, ("a", hour(6)): 5.0, ("a", hour(9)): 2.0}


def cut_off(path: Path) -> None:
    """Delete the newest version of every store: its changes, and its snapshot where Spark took one meanwhile."""

    def version(file: Path) -> int:
        return int(file.name.split(".")[0].split("_")[0])

    stores = {file.parent for file in (path / "state").rglob("*.changelog")}
    assert stores
    for store in stores:
        newest = max(map(version, store.glob("*.changelog")))
        for file in [*store.glob("*.changelog"), *store.glob("*.zip")]:
            if version(file) == newest:
                file.unlink()


def forget_beginning(path: Path) -> None:
    """Delete what Spark deletes of a long-lived checkpoint, and the newest version of every store."""
    cut_off(path)
    for folder in ("offsets", "commits"):
        (path / folder / "0").unlink()


def delete_state(path: Path) -> None:
    shutil.rmtree(path / "state")


def delete(path: Path) -> None:
    shutil.rmtree(path)


@pytest.mark.parametrize(
    ("lose", "how"), [(forget_beginning, {}), (cut_off, {"from_archive": True})], ids=["events", "archive"]
)
def test_a_damaged_state_is_made_again_from_what_the_stream_had_read(
    world: World, lose: Callable[[Path], None], how: dict[str, bool]
) -> None:
    lost = checkpoint(world, "hours")
    stream, watermark_ms = lost.stream, lost.watermark_ms()
    lose(lost.path)
    append_more(world)
    with pytest.raises(Exception, match="STATE_STORE"):
        world.maintain(["hours"])

    found = recover(world, "hours", **how)
    assert (found.found, found.source, found.differing) == ("lost", (*how, "events")[0][-7:], 0)
    assert found.offsets == {"plant.readings": {0: (0, 7)}}
    assert found.rows is not None
    assert found.rows.rows >= len(CLOSED)

    made = checkpoint(world, "hours")
    assert (made.stream != stream, made.watermark_ms()) == (True, watermark_ms)
    world.maintain(["hours"])
    assert totals(world) == GONE_ON
    assert [o.changed for o in world.reconcile(["hours"])] == [0]


def test_every_partition_of_a_state_is_made_again(spark: SparkSession, settings: Settings, registry: Registry) -> None:
    wide = spark.newSession()
    wide.conf.set("spark.sql.shuffle.partitions", "3")
    world = World(wide, replace(settings, shuffle_partitions=3), "plant", registry)
    for at in (0, 0.5, 3):
        world.append({"readings": [reading(sensor, at, 1) for sensor in "abcdef"]})
        world.maintain(["hours"])
    closed = {(sensor, hour(0)): 2.0 for sensor in "abcdef"}
    assert totals(world) == {**closed, **{(sensor, hour(3)): 1.0 for sensor in "abcdef"}}

    cut_off(checkpoint(world, "hours").path)
    found = recover(world, "hours")
    assert (found.found, found.differing) == ("lost", 0)

    world.append({"readings": [*(reading(sensor, 3.25, 4) for sensor in "ace"), reading("f", 3, 1)]})
    world.maintain(["hours"])
    went_on = {(sensor, hour(3)): 5.0 if sensor in "ace" else 1.0 for sensor in "abcdef"}
    assert totals(world) == {**closed, **went_on}
    assert [o.changed for o in world.reconcile(["hours"])] == [0]


def test_half_a_join_is_kept_through_a_recovery(world: World) -> None:
    cut_off(checkpoint(world, "alarmed").path)
    found = recover(world, "alarmed")
    assert (found.found, found.differing) == ("lost", 0)
    append_more(world)
    world.maintain(["alarmed"])
    rows = {(row["alarm"], row["read_at"]) for row in world.rows("plant.alarmed").to_pylist()}
    # The reading of 6 waited for the alarm w; it and that of 5 had met the alarm z of 6 before.
    met = {("x", hour(2)), ("y", hour(5)), ("z", hour(5)), ("z", hour(6)), ("w", hour(6)), ("v", hour(9))}
    assert rows == met
    # The reading of 1.5 came too late to meet the alarm x of 2.25.
    assert [(o.inserted, o.changed) for o in world.reconcile(["alarmed"])] == [(1, 1)]


def test_a_row_that_waits_for_another_in_vain_appears_after_a_recovery(world: World) -> None:
    def rows() -> set[tuple[str, datetime, str | None]]:
        return {(row["sensor"], row["read_at"], row["alarm"]) for row in world.rows("plant.watched").to_pylist()}

    met = {("a", hour(2), "x"), ("a", hour(5), "y"), ("a", hour(5), "z"), ("a", hour(6), "z")}
    in_vain = {("a", hour(0), None), ("a", hour(1), None), ("b", hour(2.5), None)}
    assert rows() == {*met, *in_vain}
    append_more(world)
    cut_off(checkpoint(world, "watched").path)
    found = recover(world, "watched")
    assert (found.found, found.differing) == ("lost", 0)
    world.maintain(["watched"])
    went_on = {("a", hour(6), "w"), ("a", hour(9), "v"), ("a", hour(6.5), None)}
    assert rows() == {*met, *in_vain, *went_on}
    # The reading of 1.5 came too late to meet the alarm x of 2.25.
    assert [(o.inserted, o.changed) for o in world.reconcile(["watched"])] == [(1, 1)]
    assert rows() == {*met, *in_vain, *went_on, ("a", hour(1.5), "x")}


def test_a_checkpoint_that_is_gone_is_made_again(world: World) -> None:
    delete(checkpoint(world, "hours").path)
    found = recover(world, "hours")
    assert (found.found, found.differing) == ("lost", 0)
    assert found.rows is not None
    assert (found.rows.rows, found.rows.before) == (6, None)
    append_more(world)
    world.maintain(["hours"])
    assert totals(world) == GONE_ON


def test_a_state_is_made_again_over_events_whose_log_was_cleaned(world: World) -> None:
    clean(world, "plant.readings")
    for at in (6.25, 6.75):
        world.append({"readings": [reading("b", at, 1)]})
        world.maintain(["hours"])
    lost = checkpoint(world, "hours")
    for folder in ("offsets", "commits"):
        for number in range((lost.committed or 0) - 1):
            (lost.path / folder / str(number)).unlink()
    cut_off(lost.path)
    found = recover(world, "hours")
    assert (found.found, found.source, found.differing) == ("lost", "events", 0)
    append_more(world)
    world.maintain(["hours"])
    assert totals(world) == {**GONE_ON, ("b", hour(6)): 2.0}
    assert [o.changed for o in world.reconcile(["hours"])] == [0]


def test_a_whole_checkpoint_is_made_again_to_the_same_rows(world: World) -> None:
    before = totals(world)
    assert (recover(world, "hours").differing, totals(world)) == (0, before)


def test_the_state_of_another_table_is_replaced_by_the_right_one(world: World) -> None:
    lost = checkpoint(world, "hours")
    delete_state(lost.path)
    shutil.copytree(checkpoint(world, "kept").path / "state", lost.path / "state")
    assert recover(world, "hours").differing == 0
    append_more(world)
    world.maintain(["hours"])
    assert totals(world) == GONE_ON


def test_a_table_that_was_written_past_its_stream_is_found(world: World) -> None:
    from deltalake import DeltaTable

    hours = DeltaTable(world.lake.uri("plant.hours"))
    hours.update(updates={"total": "99"}, predicate="hour = '2013-01-01T05:00:00Z'")
    delete_state(checkpoint(world, "hours").path)
    stream = checkpoint(world, "hours").stream
    with pytest.raises(UnexplainedDifference, match=r"hour=2013-01-01T05.* is .*99.0.* should be .*1.0"):
        recover(world, "hours")
    assert checkpoint(world, "hours").stream == stream
    assert recover(world, "hours", at_most=1).found == "lost"
    assert checkpoint(world, "hours").stream != stream


@pytest.mark.parametrize("name", ["newest", "days"])
def test_a_table_without_state_goes_on_after_its_newest_commit(world: World, name: str) -> None:
    assert recover(world, name).found == "whole"
    lost = checkpoint(world, name)
    versions = {source.full_name: world.lake.version(source.full_name) + 1 for source in upstream(world, name)}
    if name == "days":
        (lost.path / "position").write_text("[2, [")
    else:
        delete(lost.path)
    found = recover(world, name)
    assert (found.found, found.versions, found.source) == ("lost", versions, None)

    version = world.lake.version(f"plant.{name}")
    world.maintain([name])
    assert world.lake.version(f"plant.{name}") == version
    world.append({"readings": [reading("a", 7, 50)]})
    world.maintain(world.with_inputs([name]))
    expected = {"newest": ("value", 50.0), "days": ("total", 65.0)}[name]
    [row] = [row for row in world.rows(f"plant.{name}").to_pylist() if row["sensor"] == "a"]
    assert row[expected[0]] == expected[1]


def upstream(world: World, name: str) -> list[Any]:
    return list(world.registry.upstream(world.registry.find_table(name)))


def test_a_table_that_no_stream_wrote_has_nothing_to_recover(
    spark: SparkSession, settings: Settings, registry: Registry
) -> None:
    world = World(spark, settings, "plant", registry)
    with pytest.raises(BadArgument, match=r"neither a checkpoint nor a commit"):
        recover(world, "hours")
