"""A home that earlier code has made goes on: nothing is lost, nothing is asked twice, and old plans are refused."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.plant import DAYS_FILE, HOURS, hour, plant, reading
from twofold.batch.plan.code_changes import code_changes
from twofold.batch.plan.code_plan import plan_code
from twofold.batch.plan.plan import Plans
from twofold.batch.plan.publisher import publish_plan
from twofold.batch.rewrite import replay
from twofold.infra.errors import BadArgument, PlanVoid
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

pytestmark = pytest.mark.spark

HOME = Path(__file__).with_name("earlier_home.zip")
"""Made on 2026-11-26, before the accepted code was a property of tables: two micro-batches of readings and one bad
record, their hours and days, a late reading that reconcile has corrected, and three plans: open, begun, published."""
TOPIC = "plant.readings"
READ = [
    *(reading("a", at, 1) for at in (0, 1, 2, 5)),
    b"no json",
    *(reading("a", 1.5, 10), reading("b", 2.5, 3), reading("a", 6, 1)),
]
"""The records that earlier code has read."""
TABLES = ["hours", "days"]
HOURS_THEN = {("a", 0): 1.0, ("a", 1): 11.0, ("a", 2): 1.0, ("a", 5): 1.0, ("a", 6): 1.0, ("b", 2): 3.0}


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    """The earlier home under the same declarations."""
    shutil.unpack_archive(HOME, settings.home)
    world = World(spark, settings, "plant", plant(tmp_path / "declared", hours=HOURS, days=DAYS_FILE))
    world.raw(TOPIC, READ)
    return world


def totals(world: World) -> dict[tuple[str, int], float]:
    rows = world.rows("plant.hours").to_pylist()
    return {(row["sensor"], int((row["hour"] - hour(0)).total_seconds() / 3600)): row["total"] for row in rows}


def days(world: World) -> dict[str, float]:
    return {row["sensor"]: row["total"] for row in world.rows("plant.days").to_pylist()}


def test_a_home_of_earlier_code_goes_on_and_is_asked_about_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """How records are decoded has another fingerprint since: one plan, which changes no row, accepts it."""
    monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
    live = Platform(world.spark, world.lake, world.registry)
    asked = list(code_changes(world.lake, world.registry, ["plant"]))
    assert [(change.table, change.kind) for change in asked] == [(TOPIC, "decoding")]
    plan = plan_code(live, asked, who="ada", why="", sample=None)
    assert plan.changed == 0
    publish_plan(live, plan.id, "ada")
    assert list(code_changes(world.lake, world.registry, ["plant"])) == []

    assert totals(world) == HOURS_THEN
    world.append({TOPIC: [reading("a", 7, 1), reading("b", 7.5, 4), reading("a", 6.5, 5), b"no json either"]})
    world.maintain(TABLES)
    assert totals(world) == {**HOURS_THEN, ("a", 6): 6.0, ("a", 7): 1.0, ("b", 7): 4.0}
    assert days(world) == {"a": 21.0, "b": 7.0}
    assert world.lake.rows(f"{TOPIC}_quarantine") == 2
    assert [(o.changed, o.unexplained) for o in world.reconcile(TABLES, verify=True)] == [(0, 0), (0, 0)]
    assert list(code_changes(world.lake, world.registry, ["plant"])) == []


def test_plans_of_earlier_code_are_refused_given_up_and_still_listed(world: World) -> None:
    plans, live = Plans(world.settings), Platform(world.spark, world.lake, world.registry)
    versions = {name: world.lake.version(name) for name in world.lake.names()}
    states = {plan.state(datetime.now(UTC)): plan for plan in plans.all()}
    assert set(states) == {"open", "begun", "published"}
    for state in ("open", "begun"):
        with pytest.raises(PlanVoid, match="earlier code made it"):
            publish_plan(live, states[state].id, "grace")
        plans.discard(states[state])
    with pytest.raises(BadArgument, match="was discarded at"):
        publish_plan(live, states["begun"].id, "grace")
    [hours] = publish_plan(live, states["published"].id, "heidi")
    assert (hours.table, hours.changed, hours.approved_by) == ("plant.hours", 1, "grace")
    versions["ledger.corrections"] += 1  # gets the column that it lacks
    assert {name: world.lake.version(name) for name in world.lake.names()} == versions
