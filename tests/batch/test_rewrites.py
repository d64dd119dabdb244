"""Every way to rewrite history, for every kind of table: once, next to a stream, in the ledger, reversible."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.plant import DAYS_FILE, HOURS, hour, plant, reading
from tests.rewrites import backfill, rollback_decoded
from tests.tables.declared import TABLE_FILE, TOPIC_FILE, edited
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.offset_selection import OffsetSelection
from twofold.batch.plan.plan import Plan
from twofold.batch.plan.planning import make_plan
from twofold.batch.plan.publisher import publish_plan, rewrite_now
from twofold.batch.plan.rebuild_table import rebuild_in_shadow
from twofold.batch.reconcile import Reconcile, reconcile_tables
from twofold.batch.rewrite import replay
from twofold.batch.rewrite.backfill import recompute
from twofold.batch.rewrite.promotion import Promotion
from twofold.batch.rewrite.redrive import redrive
from twofold.batch.rewrite.rollback import rollback
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings
from twofold.streaming.rebuild.reingest import reingest
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.published_table import PublishedTable
from twofold.tables.refresh.shadow_lake import shadow
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "plant.readings"
EACH_FILE = '''\
"""Each reading."""
from twofold import table


@table(primary_key=["sensor", "read_at"], event_time="read_at", recompute_by=["sensor"])
def each(readings):
    return readings.where("value < 100")
'''
NEWEST_FILE = edited(
    edited(TABLE_FILE, "return readings", 'return readings.where("value < 100")'), "latest(", "newest("
)
FILES = {"each": EACH_FILE, "newest": NEWEST_FILE, "hours": HOURS, "days": DAYS_FILE}
"""A table of each strategy: append, latest, stateful, touched."""
STRICT = edited(
    edited(TOPIC_FILE, "import Topic\n", "import Topic\nfrom twofold.quality.rules import between\n"),
    'dedup_keys=["sensor"],\n',
    'dedup_keys=["sensor"],\n    checks=[between("value", 0, 50)],\n',
)
# Sensor `b`, which the changes are about; its hours 0 to 2 are closed, 9 is open.
BEFORE = [("b", 0, 1.0), ("b", 1, 2.0), ("b", 2, 3.0)]


def a_world(spark: SparkSession, settings: Settings, folder: Path, **files: str) -> World:
    texts = {**FILES, **files}
    return World(spark, settings, "plant", plant(folder, **texts))


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """All tables are right; a record of 60 is in quarantine; `b` at 2 is the newest reading of its sensor."""
    folder = tmp_path_factory.mktemp("before")
    settings = Settings(home=folder / "home", shuffle_partitions=1)
    world = a_world(spark, settings, folder / "then", readings=STRICT)
    world.append({TOPIC: [*(reading(*one) for one in BEFORE), reading("b", 2.5, 60.0), reading("a", 9, 1.0)]})
    world.maintain(FILES)
    world.append({TOPIC: [reading("a", 10, 1.0)]})
    world.maintain(FILES)
    world.reconcile(FILES)
    return world


def rows(world: World, name: str) -> list[dict[str, Any]]:
    return sorted(world.rows(f"plant.{name}").to_pylist(), key=str)


def damage(world: World, name: str) -> None:
    """Bring a row of sensor `b` past the platform to what no record says."""
    column = "total" if name in ("hours", "days") else "value"
    where = {"hours": "hour = '2013-01-01T01:00:00Z'", "each": "read_at = '2013-01-01T01:00:00Z'"}
    predicate = f"sensor = 'b' AND {where.get(name, 'true')}"
    DeltaTable(world.lake.uri(f"plant.{name}")).update(updates={column: "7777"}, predicate=predicate)


@dataclass
class Rewrite:
    """One way to rewrite history: what forces it, and how it is started; both work on all tables."""

    cause: str
    world: World
    taken_back: dict[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> Platform:
        return Platform(self.world.spark, self.world.lake, self.world.registry)

    def force(self, folder: Path) -> None:
        """Do what makes rows of sensor `b` wrong, or different from what they should be."""
        world = self.world
        if self.cause == "late":
            world.append({TOPIC: [reading("b", 1.5, 10.0)]})
            world.maintain(FILES)
        elif self.cause == "replay":
            self._misread(7.0)
            world.reconcile(FILES)
        elif self.cause == "redrive":
            world.registry = plant(folder / "now", **FILES)
        elif self.cause == "definition":
            doubled = {name: edited(FILES[name], "value < 100", "value < 3") for name in ("each", "newest", "hours")}
            doubled["days"] = edited(DAYS_FILE, 'F.sum("total")', '(F.sum("total") + 1)')
            world.registry = plant(folder / "now", **doubled, readings=STRICT)
        elif self.cause == "rollback":
            for name in FILES:
                damage(world, name)
                put_right = backfill(self.platform, world.registry.find_table(name))
                self.taken_back[name] = put_right.run
        else:
            for name in FILES:
                damage(world, name)
            if self.cause == "rebuild":
                for name in FILES:
                    rebuild_in_shadow(self.platform, world.registry.find_table(name), world, reingest)

    def _misread(self, value: float) -> None:
        """Let the record of 1 o'clock be another one in the events, as if an older decoder had made it."""
        DeltaTable(self.world.lake.uri(TOPIC)).update(
            updates={"value": str(value), "_replayed": "true"}, predicate="sensor = 'b' AND _offset = 1"
        )

    def shown_then_published(self) -> dict[str, RunResult]:
        """The same by a plan: of the topic for what decodes again, else of all tables."""
        world = self.world
        tables = world.registry.chosen([f"plant.{name}" for name in FILES])
        versions = {name: world.lake.version(name) for name in world.lake.names()}
        plan = self.plan([TOPIC] if self.cause in ("replay", "redrive") else [table.full_name for table in tables])
        assert {name: world.lake.version(name) for name in world.lake.names()} == versions, "it changed a table"
        found = publish_plan(self.platform, plan.id, "ada")
        assert {(o.table, o.changed) for o in found} == {(c.table, c.changed) for c in plan.changes}
        return {o.table.partition(".")[2]: o for o in found}

    def plan(self, names: Sequence[str]) -> Plan:
        """A plan of these tables."""

        def rewrite(copy: Platform) -> list[RunResult]:
            return list(self._run(copy, names))

        cause: Any = self.cause
        return make_plan(self.platform, names, rewrite, cause=cause, command=[self.cause, *names])

    def run(self) -> dict[str, RunResult]:
        """The outcome of each table."""
        if self.cause in ("late", "repair"):
            outcomes = list(self._run(self.platform))
        else:
            names = [TOPIC] if self.cause in ("replay", "redrive") else [f"plant.{name}" for name in FILES]
            of_run: dict[str, Any] = {"cause": self.cause, "command": [self.cause], "who": "ada"}
            outcomes = rewrite_now(self.platform, names, lambda copy: list(self._run(copy)), **of_run)
        return {o.table.partition(".")[2]: o for o in outcomes if o.cause == self.cause or o.changed}

    def _run(self, platform: Platform, names: Sequence[str] = ()) -> list[RunResult]:
        topic = platform.registry.topics[TOPIC]
        chosen = [name for name in names if name != TOPIC] or [f"plant.{name}" for name in FILES]
        tables = platform.registry.chosen(chosen)
        if self.cause == "late":
            return reconcile_tables(platform, tables)
        if self.cause == "replay":
            return replay.decode(platform, topic, OffsetSelection())
        if self.cause == "redrive":
            return redrive(platform, topic, OffsetSelection())
        if self.cause == "repair":
            return reconcile_tables(platform, tables, repair=True)
        one: Mapping[str, Callable[[Any], RunResult]] = {
            "definition": lambda table: recompute(platform, table, None),
            "rebuild": lambda table: Promotion(platform, shadow(self.platform, table), table).promote(),
            "rollback": lambda table: rollback(platform, table, self.taken_back[table.name]),
        }
        return [one[self.cause](table) for table in tables]


EXPECTED: dict[str, dict[str, float | None]] = {
    # What sensor `b` has in the end: the reading of 1 o'clock, the newest one, the hour of 1 o'clock, the sum.
    "late": {"each": 2.0, "newest": 3.0, "hours": 12.0, "days": 16.0},
    "replay": {"each": 2.0, "newest": 3.0, "hours": 2.0, "days": 6.0},
    "redrive": {"each": 2.0, "newest": 60.0, "hours": 2.0, "days": 66.0},
    "rebuild": {"each": 2.0, "newest": 3.0, "hours": 2.0, "days": 6.0},
    "rollback": {"each": 7777.0, "newest": 7777.0, "hours": 7777.0, "days": 7777.0},
    "definition": {"each": 2.0, "newest": 2.0, "hours": 2.0, "days": 4.0},
    "repair": {"each": 2.0, "newest": 3.0, "hours": 2.0, "days": 6.0},
}


def of_b(world: World) -> dict[str, float | None]:
    """What each table has of sensor `b`, as `EXPECTED` says it."""
    found = {name: [r for r in rows(world, name) if r["sensor"] == "b"] for name in FILES}
    one: dict[str, Callable[[dict[str, Any]], bool]] = {
        "each": lambda r: r["read_at"] == hour(1),
        "hours": lambda r: r["hour"] == hour(1),
    }
    column = {"each": "value", "newest": "value", "hours": "total", "days": "total"}
    picked = {name: [r[column[name]] for r in found[name] if one.get(name, lambda _: True)(r)] for name in FILES}
    assert all(len(values) == 1 for values in picked.values()), picked
    return {name: values[0] for name, values in picked.items()}


def of_a(world: World, cause: str) -> dict[str, list[dict[str, Any]]]:
    """By table the rows of the sensor that nothing is wrong with; another definition adds to each sum."""
    names = [name for name in FILES if (cause, name) != ("definition", "days")]
    return {name: [row for row in rows(world, name) if row["sensor"] == "a"] for name in names}


@pytest.fixture(scope="module", params=EXPECTED)
def forced(request: pytest.FixtureRequest, before: World, tmp_path_factory: pytest.TempPathFactory) -> Rewrite:
    """A world in which something is wrong, and what puts it right."""
    folder = tmp_path_factory.mktemp("forced")
    rewrite = Rewrite(request.param, before.copied_to(replace(before.settings, home=folder / "home")))
    rewrite.force(folder)
    return rewrite


@pytest.fixture
def rewrite(forced: Rewrite, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """The same, in a home of its own."""
    world = forced.world.copied_to(settings)
    monkeypatch.setattr(replay, "Log", lambda platform, topics: world)
    return replace(forced, world=world)


def test_history_is_rewritten_once_and_in_the_ledger(rewrite: Rewrite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rewrite goes through all tables, then again, then back."""
    world, cause = rewrite.world, rewrite.cause
    wrong = of_b(world)
    beside: dict[str, dict[str, Any]] = {}
    publish = PublishedTable.publish

    def beside_a_stream(target: PublishedTable, changes_of: Any, **options: Any) -> Written:
        """Once the difference is known, a record of sensor `c` comes, and the stream writes its row."""
        name = target.name.partition(".")[2]

        def raced(attempt: int) -> Any:
            found = changes_of(attempt)
            if name in FILES and name not in beside and world.lake is target.lake:
                if not beside:
                    world.append({TOPIC: [reading("c", 10, 1.0)]})
                if name not in beside:
                    beside[name] = _add_row(world, name, 2.0 if (cause, name) == ("definition", "days") else 1.0)
            return found

        return publish(target, raced, **options)

    monkeypatch.setattr(PublishedTable, "publish", beside_a_stream)
    first = rewrite.run()
    monkeypatch.setattr(PublishedTable, "publish", publish)

    assert of_b(world) == EXPECTED[cause]
    for name, added in beside.items():
        assert [r for r in rows(world, name) if r["sensor"] == "c"] == [added], "the stream's row was lost"
    for name in FILES:
        outcome = first.get(name)
        if not (outcome and outcome.changed):
            continue
        _require_in_ledger(world, name, outcome)
    changing = [outcome for outcome in first.values() if outcome.changed]
    assert changing
    assert all(Ledgers(world.lake).newest_run(o.table, run=o.run) for o in changing), "events and quarantine, too"

    if cause in ("rollback", "rebuild"):
        return  # a second roll-back is refused, a second rebuild finds nothing, by tests of their own
    world.maintain(FILES)
    versions = {name: world.lake.version(f"plant.{name}") for name in FILES}
    again = rewrite.run()
    assert [o.changed for o in again.values()] == [0] * len(again)
    assert {name: world.lake.version(f"plant.{name}") for name in FILES} == versions
    if cause in ("replay", "redrive"):
        topic = world.registry.find_topic(TOPIC)
        rollback_decoded(rewrite.platform, topic, first["readings"].run)
        world.maintain(FILES)
        assert of_b(world) == wrong
        with pytest.raises(BadArgument, match="taken back already"):
            rollback_decoded(rewrite.platform, topic, first["readings"].run)


def test_what_was_shown_is_what_is_published(rewrite: Rewrite, before: World) -> None:
    """A plan of all tables, made in a copy, published, and then nothing is left to correct."""
    world, cause = rewrite.world, rewrite.cause
    outcomes = rewrite.shown_then_published()
    # A plan carries what it changes through the tables below, here the hours that it brings back.
    carried = {"days": 7781.0} if cause == "rollback" else {}
    assert of_b(world) == EXPECTED[cause] | carried
    for name in FILES:
        if (outcome := outcomes.get(name)) and outcome.changed:
            _require_in_ledger(world, name, outcome)
    world.maintain(FILES)
    assert {o.changed for o in world.reconcile(FILES)} == {0}
    assert of_a(world, cause) == of_a(before, cause)


@pytest.mark.parametrize("stream", ["behind", "ahead"])
def test_what_a_stream_ingests_meanwhile_is_not_unexplained(before: World, settings: Settings, stream: str) -> None:
    world = before.copied_to(settings)
    platform = Platform(world.spark, world.lake, world.registry)
    pinned = [Reconcile(platform, table) for table in world.registry.chosen([f"plant.{name}" for name in FILES])]
    world.append({TOPIC: [reading("c", 10, 1.0), reading("c", 10.5, 2.0)]})
    if stream == "ahead":
        world.maintain(FILES)
    else:
        pinned = [Reconcile(one.platform, one.table) for one in pinned]
    for one in pinned:
        assert [o.unexplained for o in one.run(verify=True)] == [0], one.table.full_name
    damage(world, "each")
    assert Reconcile(platform, world.registry.find_table("each")).run(verify=True)[-1].unexplained == 1


def _add_row(world: World, name: str, total: float) -> dict[str, Any]:
    """Let a stream write the row of sensor `c`, as it does: by a MERGE with its own transaction id."""
    lake, table = world.lake, world.registry.find_table(name)
    known = {"sensor": "c", "read_at": hour(10), "hour": hour(10), "closes_at": hour(11)}
    columns = {**known, "value": 1.0, "total": total, "greatest": 1.0}
    schema = pa.schema(lake.open(table.full_name).schema())
    row = {column: columns[column] for column in schema.names}
    stamp = CommitTag(app="stream/test", version=1, info={"cause": "stream"})
    Writer(lake, table.full_name).upsert(pa.Table.from_pylist([row], schema=schema), table.primary_key, stamp)
    return row


def _require_in_ledger(world: World, name: str, outcome: RunResult) -> None:
    """The ledger of corrections has just the rows that the change feeds of the run's commits have."""
    full_name, key = f"plant.{name}", world.registry.find_table(name).primary_key
    assert outcome.version_before is not None
    assert outcome.version_after is not None
    fed = set()
    for commit in world.lake.commits(full_name, outcome.version_before, outcome.version_after):
        if commit.info.get("run") == outcome.run and commit.changes:
            feed = pa.table(world.lake.open(full_name).load_cdf(commit.version, commit.version)).to_pylist()
            fed |= {tuple(str(row[c]) for c in key) for row in feed}
    ledger = Ledgers(world.lake).corrections(full_name, outcome.version_before, outcome.version_after)
    mine = [c for c in ledger if c["run"] == outcome.run]
    assert len(mine) == outcome.changed == len(fed)
    assert {c["cause"] for c in mine} == {outcome.cause}
    assert {json.loads(c["key"])["sensor"] for c in mine} <= {"a", "b"}
    run = Ledgers(world.lake).newest_run(full_name, [outcome.cause])
    assert run is not None
    assert run["run"] == outcome.run
