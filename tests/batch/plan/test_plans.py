"""A plan is published as it was shown, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.plant import DAYS_FILE, DOUBLED_HOURS, HOURS, hour, plant, reading
from tests.tables.declared import edited
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.plan import plan as plan_store
from twofold.batch.plan.plan import Plan, Plans
from twofold.batch.plan.plan_text import sentence
from twofold.batch.plan.planning import make_plan
from twofold.batch.plan.publisher import _Publication, publish_plan
from twofold.batch.reconcile import reconcile_tables
from twofold.batch.rewrite.backfill import recompute
from twofold.infra.errors import BadArgument, PlanVoid, ProcessFailed, TwofoldError
from twofold.infra.project.settings import Settings
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.testing.worlds import World

pytestmark = pytest.mark.spark

TOPIC, TABLES = "plant.readings", ("hours", "days")
RIGHT = {1: 2.0, 2: 3.0}
"""The totals of sensor `b` by hour."""


@pytest.fixture(scope="module")
def before(reconciled: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two tables, right but for the hour of 1 o'clock, which says 5 instead of 2."""
    world = reconciled.copied_to(replace(reconciled.settings, home=tmp_path_factory.mktemp("before") / "home"))
    damage(world, 5.0)
    return world


@pytest.fixture
def world(before: World, settings: Settings) -> World:
    return before.copied_to(settings)


def damage(world: World, total: float) -> None:
    DeltaTable(world.lake.uri("plant.hours")).update(
        updates={"total": str(total)}, predicate="sensor = 'b' AND hour = '2013-01-01T01:00:00Z'"
    )


def hours_of_b(world: World) -> dict[int, float]:
    rows = world.rows("plant.hours").to_pylist()
    return {int((r["hour"] - hour(0)).total_seconds() // 3_600): r["total"] for r in rows if r["sensor"] == "b"}


def day_of_b(world: World) -> float:
    [total] = [row["total"] for row in world.rows("plant.days").to_pylist() if row["sensor"] == "b"]
    return float(total)


def platform_of(world: World) -> Platform:
    return Platform(world.spark, world.lake, world.registry)


def backfill_of(world: World, name: str = "hours") -> Plan:
    table = world.registry.find_table(name)
    return make_plan(
        platform_of(world),
        [table.full_name],
        lambda copy: [recompute(copy, table, None)],
        cause="backfill",
        command=["backfill", table.full_name],
        who="ada",
    )


def versions(world: World) -> dict[str, int]:
    return {name: world.lake.version(name) for name in world.lake.names()}


def test_a_plan_says_what_it_changes_and_why(world: World) -> None:
    damage(world, 6.0)
    world.maintain(["days"])
    plan = backfill_of(world)
    assert [(c.table, c.cause, c.updated, c.inserted, c.deleted, c.is_below) for c in plan.changes] == [
        ("plant.hours", "backfill", 1, 0, 0, False),
        ("plant.days", "upstream", 1, 0, 0, True),
    ]
    assert (plan.who, plan.changed) == ("ada", 2)
    kept = Plans(world.settings).rows(plan, plan.changes[0], world.spark)
    assert isinstance(kept, pa.Table)
    assert kept.select(["total", "_before_total"]).to_pylist() == [{"total": 2.0, "_before_total": 6.0}]
    assert [one.id for one in Plans(world.settings).all()] == [plan.id]
    assert not list(Path(world.settings.lake_uri, "_copies").iterdir())


def test_a_plan_says_how_many_rows_of_each_output_change(world: World, tmp_path: Path) -> None:
    outputs = """outputs=[
        to_postgres(where=[between("total", 5, None)]),
        to_postgres(name="sensors", columns=["sensor"]),
        to_postgres(name="closed", when="closed"),
    ],"""
    hours = edited(
        edited(HOURS, "import F,", "import F, between, to_postgres,"),
        'late="correct",',
        f'late="correct",\n    {outputs}',
    )
    declared = replace(world, registry=plant(tmp_path / "now", hours=hours, days=DAYS_FILE))
    damage(world, 6.0)
    plan = backfill_of(declared)
    assert [dict(change.outputs) for change in plan.changes] == [{"hours": 1, "sensors": 0, "closed": 1}]
    assert sentence(plan.changes[0]).endswith(" Changed rows of its outputs: hours 1, closed 1.")


def test_a_plan_is_published_once_and_nothing_is_left_to_correct(world: World) -> None:
    plan = backfill_of(world)
    [hours, *_] = publish_plan(platform_of(world), plan.id, "grace", "each row was seen")
    assert (hours.cause, hours.updated, hours.approved_by) == ("backfill", 1, "grace")
    kept = Plans(world.settings).find(plan.id)
    assert (kept.approved_by, kept.because) == ("grace", "each row was seen")
    assert hours_of_b(world) == RIGHT
    world.maintain(TABLES)
    assert day_of_b(world) == 5.0
    there = versions(world)
    [again, *_] = publish_plan(platform_of(world), plan.id, "heidi")
    assert (again.run, again.updated, again.approved_by, again.days) == (hours.run, 1, "grace", hours.days)
    assert versions(world) == there
    assert [o.changed for o in world.reconcile(TABLES)] == [0, 0]
    run = Ledgers(world.lake).newest_run("plant.hours", ["backfill"])
    assert run is not None
    assert (run["run"], run["approved_by"]) == (plan.run, "grace")


def test_a_plan_that_changes_nothing_is_empty(world: World) -> None:
    damage(world, 2.0)
    plan = backfill_of(world)
    assert plan.changes == []
    assert publish_plan(platform_of(world), plan.id, "grace") == []


@pytest.mark.parametrize(("least", "asks"), [(2, False), (1, True)])
def test_a_table_may_declare_how_many_rows_need_no_approval(
    world: World, tmp_path: Path, least: int, asks: bool
) -> None:
    hours = edited(HOURS, 'late="correct",', f'late="correct",\n    approve_above={least},')
    declared = replace(world, registry=plant(tmp_path / "now", hours=hours, days=DAYS_FILE))
    damage(world, 6.0)
    world.maintain(["days"])
    plan = backfill_of(declared)
    assert ([change.changed for change in plan.changes], plan.asks) == ([1, 1], asks)


def test_a_row_that_has_changed_since_voids_the_plan(world: World) -> None:
    plan = backfill_of(world)
    damage(world, 6.0)
    there = versions(world)
    moved = r"1 rows of plant\.hours have changed since: sensor=b hour=2013-01-01T01:00:00"
    with pytest.raises(PlanVoid, match=moved) as refused:
        publish_plan(platform_of(world), plan.id, "grace")
    assert refused.value.facts == {"moved": 1}
    assert versions(world) == there


def test_a_row_that_changes_while_it_is_published_stays_and_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, begin = backfill_of(world), _Publication.note_causes

    def begins_late(publication: _Publication) -> None:
        begin(publication)
        damage(world, 6.0)

    monkeypatch.setattr(_Publication, "note_causes", begins_late)
    [hours, *_] = publish_plan(platform_of(world), plan.id, "grace")
    assert (hours.table, hours.changed, hours.left) == ("plant.hours", 0, 1)
    assert hours_of_b(world)[1] == 6.0
    assert Plans(world.settings).find(plan.id).state(datetime.now(UTC)) == "published"


def test_code_that_has_changed_since_voids_the_plan(world: World, tmp_path: Path) -> None:
    plan = backfill_of(world)
    there = versions(world)
    changed = replace(world, registry=plant(tmp_path / "now", hours=DOUBLED_HOURS, days=DAYS_FILE))
    with pytest.raises(PlanVoid, match=r"the code of plant\.hours has changed"):
        publish_plan(platform_of(changed), plan.id, "grace")
    without = replace(world, registry=plant(tmp_path / "without", hours=DOUBLED_HOURS))
    with pytest.raises(PlanVoid, match=r"plant\.(hours|days)"):
        publish_plan(platform_of(without), plan.id, "grace")
    assert versions(world) == there


@pytest.mark.parametrize("is_cut", [False, True], ids=["at once", "cut short"])
def test_what_a_stream_has_seen_since_the_plan_is_in_the_rows_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """A sum follows its input: what comes between is in the row that the stream writes, and not in the plan."""
    damage(world, 2.0)
    world.maintain(TABLES)
    DeltaTable(world.lake.uri("plant.days")).update(updates={"total": "9"}, predicate="sensor = 'b'")
    plan = backfill_of(world, "days")
    if is_cut:
        with monkeypatch.context() as cut:
            cut.setattr(PublishedTable, "publish", killed)
            with pytest.raises(KeyboardInterrupt):
                publish_plan(platform_of(world), plan.id, "grace")
    damage(world, 6.0)
    world.maintain(TABLES)
    assert day_of_b(world) == 9.0, "the sum is now right by accident"
    publish_plan(platform_of(world), plan.id, "grace")
    assert day_of_b(world) == 5.0, "as it was shown"
    world.maintain(TABLES)
    assert day_of_b(world) == 9.0
    there = versions(world)
    world.maintain(TABLES)
    assert [o.changed for o in world.reconcile(["days"])] == [0]
    assert world.lake.version("plant.days") == there["plant.days"]


def test_a_reconcile_looks_again_at_input_that_is_newer_than_the_plan(world: World) -> None:
    """The stream of the sum does not run: a reconcile has seen the input, and the plan has not."""
    damage(world, 2.0)
    world.maintain(TABLES)
    DeltaTable(world.lake.uri("plant.days")).update(updates={"total": "9"}, predicate="sensor = 'b'")
    plan = backfill_of(world, "days")
    damage(world, 6.0)
    assert [o.changed for o in world.reconcile(["days"])] == [0], "the sum is now right by accident"
    publish_plan(platform_of(world), plan.id, "grace")
    assert day_of_b(world) == 5.0
    assert [o.changed for o in world.reconcile(["days"])] == [1]
    assert day_of_b(world) == 9.0


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_late_records_that_come_between_are_corrected_by_reconcile(world: World) -> None:
    """A reconcile found the damaged row right by the late record; the plan, made before it, is not."""
    damage(world, 4.0)
    plan = backfill_of(world)
    world.append({TOPIC: [reading("b", 1.5, 2.0)]})
    world.maintain(TABLES)
    assert [o.changed for o in world.reconcile(["hours"])] == [0]
    publish_plan(platform_of(world), plan.id, "grace")
    assert hours_of_b(world)[1] == 2.0, "as it was shown"
    world.maintain(TABLES)
    reconcile_tables(platform_of(world), world.registry.in_order())
    assert hours_of_b(world)[1] == 4.0
    newest = Ledgers(world.lake).corrections("plant.hours")[-1]
    assert (newest["cause"], [e["offset"] for e in newest["evidence"]]) == ("late", [4])


def test_plans_that_were_discarded_or_have_expired_are_refused(world: World) -> None:
    plans, plan, old = Plans(world.settings), backfill_of(world), backfill_of(world)
    there = versions(world)
    plans.discard(plan)
    plans.save(replace(old, expires_at=datetime(2020, 1, 1, tzinfo=UTC)))
    for name, why in ((plan.id, "was discarded at"), (old.id, "has expired at 2020-01-01"), ("none", "no plan 'none'")):
        with pytest.raises(BadArgument, match=why):
            publish_plan(platform_of(world), name, "grace")
    with pytest.raises(BadArgument, match="was discarded at"):
        plans.discard(plans.find(plan.id))
    assert versions(world) == there


def test_a_publication_that_was_cut_short_goes_on_past_a_changed_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = backfill_of(world)
    with monkeypatch.context() as cut:
        cut.setattr(PublishedTable, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            publish_plan(platform_of(world), plan.id, "grace")
    damage(world, 6.0)
    [hours, *_] = publish_plan(platform_of(world), plan.id, "grace")
    assert (hours.changed, hours.left) == (0, 1)
    assert Plans(world.settings).find(plan.id).state(datetime.now(UTC)) == "published"


def test_a_publication_that_was_cut_short_can_be_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plans, plan = Plans(world.settings), backfill_of(world)
    monkeypatch.setattr(plan_store, "_PATIENCE_S", 0.0)

    def killed_later(*_: object, **__: object) -> None:
        with pytest.raises(ProcessFailed, match="Another process publishes a plan"):
            plans.discard(plan)
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(PublishedTable, "publish", killed_later)
        with pytest.raises(KeyboardInterrupt):
            publish_plan(platform_of(world), plan.id, "grace")
    plans.save(replace(plans.find(plan.id), created_at=datetime(2026, 1, 1, tzinfo=UTC)))
    plans.drafted("another")
    plans.discard(plan)
    with pytest.raises(BadArgument, match="was discarded at"):
        publish_plan(platform_of(world), plan.id, "grace")


def test_a_plan_of_earlier_code_is_void(world: World) -> None:
    plans, plan = Plans(world.settings), backfill_of(world)
    plans.save(replace(plan, format=1))
    with pytest.raises(PlanVoid, match="earlier code made it") as raised:
        publish_plan(platform_of(world), plan.id, "grace")
    assert "./twofold backfill plant.hours --preview" in str(raised.value.hint)
    plans.save(replace(plan, format=1, begun_at=datetime.now(UTC)))
    with pytest.raises(PlanVoid, match="cannot go on: earlier code made it") as raised:
        publish_plan(platform_of(world), plan.id, "grace")
    assert f"./twofold discard {plan.id}" in str(raised.value.hint)
    assert plans.discard(plans.find(plan.id)).discarded_at, "given up"


def test_kept_rows_that_were_changed_are_refused(world: World) -> None:
    plan = backfill_of(world)
    file = Plans(world.settings).folder / plan.id / "plant.hours.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.set_column(rows.column_names.index("total"), "total", pa.array([7777.0])), file)
    there = versions(world)
    with pytest.raises(BadArgument, match=r"rows of plant\.hours .* missing or were changed"):
        publish_plan(platform_of(world), plan.id, "grace")
    assert versions(world) == there


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_publication_that_was_cut_short_is_finished_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Ends after so many publications of tables; the second of them is of the table below."""
    damage(world, 6.0)
    world.maintain(["days"])
    plan = backfill_of(world)
    publish: Callable[..., Any] = PublishedTable.publish
    made: list[str] = []

    def dying(target: PublishedTable, *args: Any, **options: Any) -> Any:
        if len(made) == commits:
            raise TwofoldError("killed")
        made.append(target.name)
        return publish(target, *args, **options)

    monkeypatch.setattr(PublishedTable, "publish", dying)
    if commits < 2:
        with pytest.raises(TwofoldError, match="killed"):
            publish_plan(platform_of(world), plan.id, "grace")
        assert Plans(world.settings).find(plan.id).state(datetime.now(UTC)) == "begun"
    else:
        publish_plan(platform_of(world), plan.id, "grace")
    monkeypatch.setattr(PublishedTable, "publish", publish)
    first = publish_plan(platform_of(world), plan.id, "grace")
    assert [(o.table, o.changed, o.left) for o in first] == [("plant.hours", 1, 0), ("plant.days", 1, 0)]
    assert publish_plan(platform_of(world), plan.id, "heidi") == first
    assert first[0].seconds > 0
    assert (hours_of_b(world), day_of_b(world)) == (RIGHT, 5.0)
    runs = [c["run"] for name in TABLES for c in Ledgers(world.lake).corrections(f"plant.{name}")]
    assert runs.count(plan.run) == 2
    assert [o.changed for o in world.reconcile(TABLES)] == [0, 0]
