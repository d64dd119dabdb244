"""What a change of code changes in the rows is known before it is merged, and is what is then applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plant import DAYS_FILE, DOUBLED_HOURS, HOURS, HOURS_FILE, WIDER_HOURS, hour, plant, reading
from tests.rewrites import rollback_decoded
from tests.tables.declared import TOPIC_FILE, edited
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.plan.code_plan import plan_code
from twofold.batch.plan.plan import Plan
from twofold.batch.plan.plan_text import impact
from twofold.batch.plan.publisher import publish_plan
from twofold.infra.errors import BadArgument, QualityFailed
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform, ensure_domain
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "plant.readings"
PEAKS = '''\
"""The greatest hour of each sensor."""
from twofold import F, table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def peaks(hours):
    return hours.groupBy("sensor").agg(F.max("total").alias("total"))
'''
GREATEST = '''\
"""The greatest reading of each sensor."""
from twofold import F, Window, table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def greatest(readings):
    by = Window.partitionBy("sensor").orderBy(F.desc("value"))
    return readings.withColumn("nth", F.row_number().over(by)).where("nth = 1").drop("nth")
'''
VALUES = '''\
"""The readings, one of each value of a sensor."""
from twofold import table


@table(primary_key=["sensor", "value"], recompute_by=["sensor"])
def values(readings):
    return readings.where("value IS NOT NULL")
'''
SPREADS = '''\
"""How far the values of each sensor are apart."""
from twofold import F, table


@table(primary_key=["sensor"], recompute_by=["sensor"])
def spreads(readings):
    return readings.groupBy("sensor").agg(F.stddev("value").alias("spread"))
'''
UNPROVED = {"greatest": GREATEST, "values": VALUES, "spreads": SPREADS}
PROVED = {
    "greatest": edited(GREATEST, 'F.desc("value")', 'F.desc("value"), "read_at"'),
    "values": edited(VALUES, "recompute_by", 'sequence_by=["read_at"], recompute_by'),
    "spreads": edited(SPREADS, "recompute_by", 'tolerances={"spread": 1e-9}, recompute_by'),
}
FILES = {"hours": HOURS, "days": DAYS_FILE}
CHANGES = {
    "threshold": {"hours": edited(HOURS, "value < 100", "value < 3")},
    "threshold, and the sum of what is left": {
        "hours": edited(HOURS, "value < 100", "value < 3"),
        "days": edited(DAYS_FILE, 'F.sum("total")', '(F.sum("total") + 1)'),
    },
    "new column": {"hours": WIDER_HOURS},
    "renamed column": {
        "hours": HOURS.replace('"greatest"', '"highest"'),
    },
    "new table": {"peaks": PEAKS},
    "watermark": {"hours": edited(HOURS, 'watermark="1 hour"', 'watermark="2 hours"')},
}
EXPECTED: dict[str, dict[str, tuple[int, int, int]]] = {
    # Table -> rows added, removed, changed. Closed are the hours 1 (2), 2 (3) of sensor b; of 3 nothing is left of it.
    "threshold": {"plant.hours": (0, 1, 0), "plant.days": (0, 0, 1)},
    "threshold, and the sum of what is left": {"plant.hours": (0, 1, 0), "plant.days": (0, 0, 2)},
    "new column": {"plant.hours": (0, 0, 4)},
    "renamed column": {"plant.hours": (0, 0, 4)},
    "new table": {"plant.peaks": (2, 0, 0)},
    "watermark": {"plant.hours": (0, 0, 0)},
}


def changed(reconciled: World, settings: Settings, folder: Path, **files: str) -> Platform:
    """The same home under other declarations, of which no table was made yet."""
    world = reconciled.copied_to(settings)
    return Platform(world.spark, world.lake, plant(folder / "now", **{**FILES, **files}))


def planned(platform: Platform, sample: timedelta | None = None) -> Plan:
    changes = list(code_changes(platform.lake, platform.registry, ["plant"]))
    return plan_code(platform, changes, who="ada", why="", sample=sample)


def gone_on(reconciled: World, settings: Settings) -> World:
    """Later rows by the streams of the old code, which go on until a plan is published."""
    world = replace(reconciled, settings=settings, log=dict(reconciled.log))
    world.append({TOPIC: [reading("b", 11, 4.0), reading("a", 14, 1.0)]})
    world.maintain(FILES)
    return world


@pytest.mark.parametrize("kind", CHANGES)
def test_a_plan_has_the_rows_that_the_change_changes(
    reconciled: World, settings: Settings, tmp_path: Path, kind: str
) -> None:
    platform = changed(reconciled, settings, tmp_path, **CHANGES[kind])
    lake = platform.lake
    versions = {name: lake.version(name) for name in lake.names()}
    plan = planned(platform)
    assert {name: lake.version(name) for name in lake.names()} == versions, "a plan touches nothing"
    found = {c.table: (c.inserted, c.deleted, c.updated) for c in plan.changes}
    assert found == EXPECTED[kind]
    published = publish_plan(platform, plan.id, "ada")
    assert {o.table for o in published} == set(EXPECTED[kind])
    assert list(code_changes(lake, platform.registry, ["plant"])) == []
    world = World(reconciled.spark, settings, "plant", platform.registry, dict(reconciled.log))
    tables = [*FILES, *(name for name in CHANGES[kind] if name not in FILES)]
    assert [(o.table, o.changed, o.unexplained) for o in world.reconcile(tables, verify=True) if o.unexplained] == []


STRICT_TOPIC = edited(
    edited(TOPIC_FILE, "import Topic", "import Topic\nfrom twofold.quality.rules import between"),
    'message_key="sensor",',
    'message_key="sensor",\n    checks=[between("value", 0, 2.5)],',
)
WIDER_TOPIC = edited(TOPIC_FILE, '"value": "double?"', '"value": "double?", "place": "string?"')
TOPICS: dict[str, tuple[str, dict[str, tuple[int, int, int]]]] = {
    "a rule that a record breaks": (
        STRICT_TOPIC,
        {
            TOPIC: (0, 1, 0),
            f"{TOPIC}_quarantine": (1, 0, 0),
            "plant.hours": (0, 1, 0),
            "plant.days": (0, 0, 1),
        },
    ),
    "a field that no record has": (WIDER_TOPIC, {TOPIC: (0, 0, 0)}),
}


@pytest.mark.parametrize("kind", TOPICS)
def test_a_plan_has_the_records_that_are_decoded_otherwise(
    reconciled: World, settings: Settings, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = TOPICS[kind]
    platform = changed(reconciled, settings, tmp_path, readings=text)
    world = World(reconciled.spark, settings, "plant", platform.registry, dict(reconciled.log))
    monkeypatch.setattr("twofold.batch.rewrite.replay.Log", lambda *_: world)
    [change] = code_changes(platform.lake, platform.registry, ["plant"])
    assert str(change).startswith("plant.readings: records are decoded otherwise, ")
    plan = planned(platform)
    assert {c.table: (c.inserted, c.deleted, c.updated) for c in plan.changes if c.table in expected} == expected
    publish_plan(platform, plan.id, "ada")
    assert list(code_changes(platform.lake, platform.registry, ["plant"])) == []
    assert [o for o in world.reconcile(FILES) if o.changed] == []
    rows = {(r["sensor"], r["hour"]): r["total"] for r in world.rows("plant.hours").to_pylist()}
    assert (("b", hour(2)) in rows) == (kind == "a field that no record has")


def test_records_between_a_plan_and_a_restart_are_decoded_again(
    reconciled: World, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = changed(reconciled, settings, tmp_path, readings=STRICT_TOPIC)
    old = replace(reconciled, settings=settings, log=dict(reconciled.log))
    world = World(reconciled.spark, settings, "plant", platform.registry, dict(reconciled.log))
    monkeypatch.setattr("twofold.batch.rewrite.replay.Log", lambda *_: world)
    plan = planned(platform)
    old.append({TOPIC: [reading("b", 11, 2.9), reading("a", 11, 1.0)]})
    before = world.rows(f"{TOPIC}_quarantine").num_rows
    world.log = old.log
    publish_plan(platform, plan.id, "ada")
    assert sorted(world.rows(TOPIC)["value"].to_pylist())[-1] <= 2.5
    assert world.rows(f"{TOPIC}_quarantine").num_rows == before + 2, "of the plan one, and one since"
    world.append({TOPIC: [reading("c", 11, 1.0)]})
    world.maintain(["hours"])
    assert ("c", hour(11)) in {(r["sensor"], r["hour"]) for r in world.rows("plant.hours").to_pylist()}
    assert list(code_changes(platform.lake, platform.registry, ["plant"])) == []
    rollback_decoded(platform, platform.registry.topics[TOPIC], plan.run)
    assert 3.0 in world.rows(TOPIC)["value"].to_pylist(), "which the stricter rule had refused"
    assert [change.kind for change in code_changes(platform.lake, platform.registry, ["plant"])] == ["decoding"]


def test_a_plan_of_a_new_table_leaves_open_rows_to_its_stream(
    reconciled: World, settings: Settings, tmp_path: Path
) -> None:
    platform = changed(reconciled, settings, tmp_path, again=HOURS_FILE.format(name="again", late="correct"))
    old = replace(reconciled, settings=settings, log=dict(reconciled.log))
    old.append({TOPIC: [reading("b", 14.2, 4.0)]})
    plan = planned(platform)
    publish_plan(platform, plan.id, "ada")
    world = replace(old, registry=platform.registry)
    [said] = impact(plan)
    assert said.endswith("Its stream computes the rows that close at 2013-01-01 13:12 or later.")
    rows = {(r["sensor"], r["hour"]): r["total"] for r in world.rows("plant.again").to_pylist()}
    assert ("b", hour(2)) in rows
    assert ("b", hour(14)) not in rows, "a record for it may still come in time"
    world.append({TOPIC: [reading("b", 14.5, 1.0)]})
    world.append({TOPIC: [reading("a", 20, 1.0)]})
    world.maintain(["hours", "again"])
    both = [
        {(r["sensor"], r["hour"]): r["total"] for r in world.rows(f"plant.{name}").to_pylist()}
        for name in ("hours", "again")
    ]
    assert both[0] == both[1]
    assert both[1]["b", hour(14)] == 5.0
    assert [o.unexplained for o in world.reconcile(["again"], verify=True)] == [0]


def test_a_plan_counts_the_rows_that_break_a_new_rule_and_changes_none(
    reconciled: World, settings: Settings, tmp_path: Path
) -> None:
    rule = "import F, table\nfrom twofold.quality.rules import between"
    strict = edited(HOURS, 'late="correct",', 'late="correct",\n    checks=[between("total", 0, 2.5)],')
    platform = changed(reconciled, settings, tmp_path, hours=edited(strict, "import F, table", rule))
    plan = planned(platform)
    assert plan.notes == [
        "plant.hours: other rules",
        "plant.hours: 1 of 4 rows break between(total, 0, 2.5)",
    ]
    assert [(c.table, c.changed) for c in plan.changes] == [("plant.hours", 0)]
    publish_plan(platform, plan.id, "ada")
    assert list(code_changes(platform.lake, platform.registry, ["plant"])) == []


@pytest.mark.parametrize("hours", [DOUBLED_HOURS, WIDER_HOURS], ids=["same columns", "other columns"])
def test_rows_that_close_after_the_plan_are_of_the_new_code_too(
    reconciled: World, settings: Settings, tmp_path: Path, hours: str
) -> None:
    platform = changed(reconciled, settings, tmp_path, hours=hours)
    plan = planned(platform)
    old = gone_on(reconciled, settings)
    publish_plan(platform, plan.id, "ada")
    new = replace(old, registry=platform.registry)
    new.maintain(FILES)
    times = 2 if hours == DOUBLED_HOURS else 1
    rows = {(r["sensor"], r["hour"]): r["total"] for r in new.rows("plant.hours").to_pylist()}
    expected = {("b", 1): 2.0, ("b", 2): 3.0, ("a", 9): 1.0, ("a", 10): 1.0, ("b", 11): 4.0, ("a", 14): 1.0}
    assert rows == {(sensor, hour(at)): total * times for (sensor, at), total in expected.items()}
    assert {r["sensor"]: r["total"] for r in new.rows("plant.days").to_pylist()} == {"a": 3.0 * times, "b": 9.0 * times}


def test_a_publication_that_was_cut_short_also_computes_later_rows(
    reconciled: World, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = changed(reconciled, settings, tmp_path, hours=DOUBLED_HOURS)
    plan = planned(platform)
    old = gone_on(reconciled, settings)
    with monkeypatch.context() as cut:
        cut.setattr("twofold.batch.plan.publisher.recompute", killed)
        with pytest.raises(KeyboardInterrupt):
            publish_plan(platform, plan.id, "ada")
    publish_plan(platform, plan.id, "ada")
    rows = {(r["sensor"], r["hour"]): r["total"] for r in old.rows("plant.hours").to_pylist()}
    assert (rows["b", hour(2)], rows["a", hour(10)], rows["b", hour(11)]) == (6.0, 2.0, 8.0)


def test_a_live_table_gets_the_parameter_that_it_lacks_without_a_row(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    older = replace(plant(tmp_path / "then", **UNPROVED), unproved={})
    world = World(spark, settings, "plant", older)
    world.append({TOPIC: [reading("a", 1, 1.0), reading("a", 2, 3.0), reading("b", 3, 2.0)]})
    world.maintain(UNPROVED)
    platform = Platform(spark, world.lake, plant(tmp_path / "now", **PROVED))
    assert platform.registry.unproved == {}
    plan = planned(platform)
    changes = {c.table: (c.inserted, c.deleted, c.updated) for c in plan.changes}
    assert changes == {"plant.greatest": (0, 0, 0), "plant.values": (0, 0, 0)}, "tolerances need no plan"
    assert plan.compared == 5
    publish_plan(platform, plan.id, "ada")
    assert list(code_changes(platform.lake, platform.registry, ["plant"])) == []
    world = replace(world, registry=platform.registry)
    world.append({TOPIC: [reading("a", 4, 5.0), reading("a", 5, 5.0)]})
    world.maintain(UNPROVED)
    found = {
        name: {(r["sensor"], r["value"], r["read_at"]) for r in world.rows(f"plant.{name}").to_pylist()}
        for name in ("greatest", "values")
    }
    b = ("b", 2.0, hour(3))
    assert found == {
        "greatest": {("a", 5.0, hour(4)), b},
        "values": {("a", 1.0, hour(1)), ("a", 3.0, hour(2)), ("a", 5.0, hour(5)), b},
    }
    spreads = {r["sensor"]: r["spread"] for r in world.rows("plant.spreads").to_pylist()}
    assert spreads == {"a": pytest.approx(3.6667**0.5, rel=1e-4), "b": None}, "the variance of 1, 3, 5 and 5"


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_nothing_has_changed_where_only_comments_have(reconciled: World, settings: Settings, tmp_path: Path) -> None:
    same = HOURS.replace("from twofold import", "# Sums.\nfrom twofold import")
    platform = changed(reconciled, settings, tmp_path, hours=same)
    assert list(code_changes(platform.lake, platform.registry, ["plant"])) == []


def test_a_table_that_no_file_declares_any_more_is_named(reconciled: World, settings: Settings, tmp_path: Path) -> None:
    world = reconciled.copied_to(settings)
    registry = plant(tmp_path / "more", **FILES, peaks=PEAKS)
    assert ensure_domain(world.spark, world.lake, registry, "plant") == {}
    [removed] = code_changes(world.lake, world.registry, ["plant"])
    assert str(removed) == "plant.peaks: no file declares it any more; its rows stay"


def test_a_sample_is_looked_at_and_not_published(reconciled: World, settings: Settings, tmp_path: Path) -> None:
    platform = changed(reconciled, settings, tmp_path, **CHANGES["threshold"])
    assert [c.table for c in planned(platform, timedelta(hours=2)).changes if c.changed] == []
    plan = planned(platform, timedelta(hours=12))
    assert [(c.table, c.deleted) for c in plan.changes if not c.is_below] == [("plant.hours", 1)]
    with pytest.raises(BadArgument, match="of the newest 12:00:00 alone"):
        publish_plan(platform, plan.id, "ada")


def test_rows_that_break_a_rule_make_no_plan(reconciled: World, settings: Settings, tmp_path: Path) -> None:
    rule = "import F, table\nfrom twofold.quality.rules import between"
    strict = edited(HOURS, 'late="correct",', 'late="correct",\n    checks=[between("total", 0, 9)],')
    strict = edited(edited(strict, "import F, table", rule), 'F.sum("value")', 'F.sum(-F.col("value"))')
    with pytest.raises(QualityFailed, match=r"plant\.hours: the recomputed row"):
        planned(changed(reconciled, settings, tmp_path, hours=strict))
    assert not list((settings.home / "plans").glob("*/plan.json"))


def test_hours_of_the_fixture_are_what_the_expectations_say(reconciled: World) -> None:
    rows = {(r["sensor"], r["hour"]): r["total"] for r in reconciled.rows("plant.hours").to_pylist()}
    assert rows == {("b", hour(1)): 2.0, ("b", hour(2)): 3.0, ("a", hour(9)): 1.0, ("a", hour(10)): 1.0}
