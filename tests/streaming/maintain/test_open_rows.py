"""A late record of a row that is still open revises it at once, and a repeated one does not."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plant import START, plant, reading
from tests.tables.declared import TOPIC_FILE, edited
from twofold.infra.rows.sizes import COMPARED
from twofold.streaming.maintain.stateful_query import QueryDrivenStream
from twofold.tables.refresh.refresh import Refreshed, Refresher
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from twofold.infra.project.settings import Settings
    from twofold.tables.refresh.scope import Scope

pytestmark = pytest.mark.spark

DAYS = '''
"""Readings of each sensor and day, and their sum."""
from twofold import F, table


@table(
    primary_key=["sensor", "day"],
    event_time="day",
    watermark="10 minutes",
    closes_at="closes_at",
    recompute_by=["sensor"],
    depends_within="1 day",
)
def days(readings):
    return (
        readings.groupBy("sensor", F.window("read_at", "1 day"))
        .agg(F.count("*").alias("readings"), F.sum("value").alias("total"))
        .select("sensor", F.col("window.start").alias("day"), F.col("window.end").alias("closes_at"),
                "readings", "total")
    )
'''

CALLS = '''
"""Calls of sensors."""
from twofold.tables.declare.table import Topic

TOPIC = Topic(
    schema={"sensor": "string", "called_at": "timestamp"},
    event_time="called_at",
    message_key="sensor",
    dedup_keys=["sensor"],
)
'''
ANSWERS = '''
"""Each call with the reading that answers it within a day."""
from twofold import F, table


@table(
    primary_key=["sensor", "called_at"],
    event_time="called_at",
    watermark="10 minutes",
    closes_at="closes_at",
    recompute_by=["sensor"],
    depends_within="1 day",
)
def answers(calls, readings):
    day = F.expr("INTERVAL 1 DAY")
    after = (F.col("r.read_at") >= F.col("called_at")) & (F.col("r.read_at") <= F.col("called_at") + day)
    joined = calls.alias("c").join(readings.alias("r"), (F.col("c.sensor") == F.col("r.sensor")) & after, "left")
    return joined.select("c.sensor", "called_at", "value", (F.col("called_at") + day).alias("closes_at"))
'''


def days(world: World) -> dict[tuple[str, float], tuple[int, float]]:
    """(sensor, day) -> readings, total."""
    rows = world.rows("plant.days").to_pylist()
    return {(r["sensor"], (r["day"] - START) / timedelta(days=1)): (r["readings"], r["total"]) for r in rows}


def take(world: World, *readings: tuple[float, float]) -> None:
    """One micro-batch of the sensor `a`: hour and value of each reading."""
    world.append({"readings": [reading("a", at, value) for at, value in readings]})
    world.maintain(["days"])


def test_a_late_record_of_an_open_row_revises_it_at_once(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World(spark, settings, "plant", plant(tmp_path, days=DAYS))
    take(world, (1, 1), (12, 2))
    take(world, (2, 4))  # ten hours behind the watermark
    assert days(world) == {("a", 0): (3, 7)}
    take(world, (1, 1), (2, 4), (12, 2), (3, 8))  # three of them once more
    assert days(world) == {("a", 0): (4, 15)}
    take(world, (25, 16))
    take(world, (4, 32), (25.5, 64))  # the first is of a day that has closed
    assert days(world) == {("a", 0): (4, 15), ("a", 1): (2, 80)}
    assert [o.changed for o in world.reconcile(["days"])] == [1]
    assert days(world) == {("a", 0): (5, 47), ("a", 1): (2, 80)}
    take(world, (4, 32), (25, 16))
    assert days(world) == {("a", 0): (5, 47), ("a", 1): (2, 80)}


@pytest.mark.parametrize("compared", [COMPARED, 0], ids=["few rows", "many rows"])
def test_a_scope_that_waits_is_recomputed_once_for_each_closing(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    monkeypatch.setattr("twofold.tables.refresh.refresh.COMPARED", compared)
    world, recomputed = World(spark, settings, "plant", plant(tmp_path, days=DAYS)), []
    publish = Refresher.publish

    def counted(self: Refresher, scopes: Sequence[Scope], info: Mapping[str, object], *, check: bool) -> Refreshed:
        recomputed.append(scopes)
        return publish(self, scopes, info, check=check)

    monkeypatch.setattr(Refresher, "publish", counted)
    take(world, (1, 1), (25, 2))
    take(world, (23, 4), (25.5, 8))  # the first is of a day that has closed; the day after, in its range, is open
    looked: list[tuple[float, int, int]] = []
    for at in (26, 49, 60, 72, 73):
        take(world, (at, 0))
        [outcome] = world.reconcile(["days"])
        looked.append((at, len(recomputed), outcome.changed))
    # The watermark is ten minutes behind. The open day closes at 48; what is read up to 47, the end of the range, is in
    # rows that have closed at 71.
    assert looked == [
        (26, 1, 1),
        *((49, 2, 0), (60, 2, 0)),
        *((72, 3, 0), (73, 3, 0)),
    ]
    assert days(world) == {("a", 0): (2, 5), ("a", 1): (3, 10), ("a", 2): (2, 0), ("a", 3): (2, 0)}


def test_a_copy_with_another_recompute_by_counts_in_stream_and_batch(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    readings = edited(TOPIC_FILE, 'dedup_keys=["sensor"]', 'dedup_keys=["value"]')
    world = World(spark, settings, "plant", plant(tmp_path, days=DAYS, readings=readings))
    copies = [reading("a", 1, 5), reading("b", 1, 5), reading("a", 1, 5), reading("b", 1, 5)]
    for records in (copies, [*copies, reading("a", 30, 1)], [reading("b", 2, 8)]):  # the last of a day that has closed
        world.append({"readings": records})
        world.maintain(["days"])
    assert days(world) == {("a", 0): (1, 5), ("b", 0): (1, 5), ("a", 1): (1, 1)}
    assert [o.changed for o in world.reconcile(["days"])] == [1]
    assert days(world) == {("a", 0): (1, 5), ("b", 0): (2, 13), ("a", 1): (1, 1)}


def test_a_text_that_says_join_or_session_hides_no_open_row(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    text = """readings.where("sensor NOT IN ('Join us', 'session_window')")"""
    world = World(spark, settings, "plant", plant(tmp_path, days=edited(DAYS, "readings.groupBy", f"{text}.groupBy")))
    stream = QueryDrivenStream(spark, world.lake, world.registry, world.registry.find_table("days"))
    assert stream._derived_with_state()[1] == "update"


def test_a_late_record_of_an_open_row_of_a_join_waits_for_its_closing(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Spark's join drops what its watermark has passed, though the row that it belongs to is open."""
    world = World(spark, settings, "plant", plant(tmp_path, calls=CALLS, answers=ANSWERS))

    def take_both(at: float, calls: Sequence[str] = (), *readings: bytes) -> dict[str, float | None]:
        """A micro-batch with a clock in both topics; then the answers of all but the clock."""
        called = [json.dumps({"sensor": s, "called_at": (START + timedelta(hours=1)).isoformat()}) for s in calls]
        called.append(json.dumps({"sensor": "clock", "called_at": (START + timedelta(hours=at)).isoformat()}))
        world.append({"calls": [c.encode() for c in called], "readings": [*readings, reading("clock", at, 0)]})
        world.maintain(["answers"])
        return {r["sensor"]: r["value"] for r in world.rows("plant.answers").to_pylist() if r["sensor"] != "clock"}

    def reconcile() -> tuple[int, int]:
        found = world.reconcile(["answers"])
        return sum(o.changed for o in found), sum(o.pending for o in found)

    assert take_both(12, ["in time", "late"], reading("in time", 2, 1)) == {"in time": 1}
    assert take_both(13, ["late call"], reading("late", 2, 4), reading("late call", 13, 8)) == {"in time": 1}
    assert reconcile() == (0, 2)
    take_both(26)
    assert take_both(26.5) == {"in time": 1, "late": None}
    assert reconcile()[0] == 2
    assert take_both(27) == {"in time": 1, "late": 4, "late call": 8}
