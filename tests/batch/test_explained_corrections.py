"""Every correction says which records forced it, and what nothing explains is named and left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.late_departure import LATE_BY_MS, LATE_OFFSET, TABLES, TEN, departure, late_departure_world
from tests.late_reading import TOPIC, ZERO, hours
from tests.plant import plant, reading
from tests.support.loaded_modules import loading_none_of
from twofold.batch.changelog_check import unexplained_changes
from twofold.batch.late_records import late_records
from twofold.batch.ledgers.row_history import read_history
from twofold.batch.ledgers.run_ledgers import CORRECTIONS, Ledgers
from twofold.batch.ledgers.run_result import RunResult
from twofold.batch.pending_work import nothing_to_do, untouched
from twofold.batch.reconcile import Reconcile
from twofold.batch.rewrite.backfill import recompute
from twofold.batch.unexplained import require_explained
from twofold.infra.errors import UnexplainedDifference
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.acceptance import is_same
from twofold.tables.refresh.open_platform import Platform
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = {"origin": "JFK", "hour": TEN}
LATE = {"source": "flights.departures", "partition": 0, "offset": LATE_OFFSET, "late_by_ms": LATE_BY_MS}


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The story before any reconcile."""
    home = tmp_path_factory.mktemp("before") / "home"
    return late_departure_world(spark, Settings(home=home, shuffle_partitions=1))


@pytest.fixture
def own(before: World, settings: Settings) -> World:
    """The same, in a home that a test may change."""
    return before.copied_to(settings)


@pytest.fixture(scope="module")
def world(before: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same, reconciled."""
    home = tmp_path_factory.mktemp("explained") / "home"
    world = before.copied_to(replace(before.settings, home=home))
    world.reconcile(TABLES)
    return world


def platform(world: World) -> Platform:
    return Platform(world.spark, world.lake, world.registry)


def corrections(world: World, table: str) -> list[dict[str, Any]]:
    return Ledgers(world.lake).corrections(f"flights.{table}")


def test_a_correction_has_both_rows_and_the_record_that_caused_it(world: World) -> None:
    (correction,) = corrections(world, "delays_by_hour")
    before, after = json.loads(correction["before"]), json.loads(correction["after"])
    assert (before["flights"], before["mean_delay_min"]) == (2, 12.5)
    assert (after["flights"], after["mean_delay_min"]) == (3, 20.0)
    assert (correction["cause"], correction["evidence"]) == ("late", [LATE])
    assert json.loads(correction["inputs"]) == {"flights.departures": world.lake.version("flights.departures")}


def test_the_upstream_table_is_corrected_first_by_the_same_record(world: World) -> None:
    (flight,) = corrections(world, "flights")
    (day,) = corrections(world, "carrier_days")
    assert (flight["change"], flight["cause"], flight["evidence"]) == ("insert", "late", [LATE])
    assert (day["change"], day["cause"], day["evidence"]) == ("update", "upstream", [LATE])
    assert (json.loads(day["before"])["flights"], json.loads(day["after"])["flights"]) == (2, 3)
    assert json.loads(day["inputs"]) == {"flights.flights": flight["version"]}


@pytest.mark.parametrize("name", TABLES)
def test_what_the_stream_wrote_with_the_corrections_is_the_table(world: World, name: str) -> None:
    table = world.registry.find_table(name)
    assert world.lake.rows(table.full_name) > 0
    assert unexplained_changes(world.lake, table) == 0


def test_a_correction_that_is_not_in_the_ledger_is_missed_by_the_fold(world: World) -> None:
    table = world.registry.find_table("delays_by_hour")
    ledger = world.lake.open(CORRECTIONS)
    version = ledger.version()
    ledger.delete("\"table\" = 'flights.delays_by_hour'")
    try:
        assert unexplained_changes(world.lake, table) == 1
    finally:
        world.lake.open(CORRECTIONS).restore(version)


def test_the_story_of_a_row_is_reported_in_order(world: World) -> None:
    told = read_history(world.lake, world.registry.find_table("delays_by_hour"), HOUR)
    first, last = told.versions[0], told.versions[-1]
    assert (first.by, first.change) == ("stream", "insert")
    assert first.batch is not None
    assert (last.by, last.before, last.after) == (
        "late",
        {"flights": 2, "mean_delay_min": 12.5, "p90_delay_min": 18.5, "late_share": 0.5},
        {"flights": 3, "mean_delay_min": 20.0, "p90_delay_min": 32.0, "late_share": pytest.approx(2 / 3)},
    )
    assert [(r.partition, r.offset, r.late_by_ms) for r in last.records] == [(0, LATE_OFFSET, LATE_BY_MS)]
    assert [c.at for c in told.versions] == sorted(c.at for c in told.versions)
    assert is_same(told.definition, last.fingerprint)
    assert told.now is not None
    assert told.now["flights"] == 3


def test_a_late_record_is_listed_with_what_it_changed(world: World) -> None:
    (record,) = late_records(platform(world), world.registry.find_table("delays_by_hour"))
    assert (record.offset, record.late_by_ms, record.fate) == (LATE_OFFSET, LATE_BY_MS, "corrected")
    assert record.event_at == TEN + timedelta(minutes=40)
    assert list(record.rows) == [{"origin": "JFK", "hour": "2013-03-05T10:00:00+00:00"}]


def test_a_late_record_beyond_the_named_ones_is_corrected_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (correction,) = corrections(world, "delays_by_hour")
    assert correction["records"] == 1
    cut = [{**correction, "evidence": [], "records": 1}]
    monkeypatch.setattr(Ledgers, "corrections", lambda *_: cut)
    (record,) = late_records(platform(world), world.registry.find_table("delays_by_hour"))
    assert (record.fate, list(record.rows)) == ("corrected", [{"origin": "JFK", "hour": "2013-03-05T10:00:00+00:00"}])


def test_nothing_to_do_is_known_without_loading_an_engine(world: World) -> None:
    names = [f"flights.{name}" for name in TABLES]
    assert [(o.table, o.changed) for o in untouched(world.settings, names) or []] == [
        (table.full_name, 0) for table in world.registry.chosen(names)
    ]
    said = loading_none_of(
        {"pyspark", "airflow", "duckdb", "pyarrow", "pandas", "numpy", "typer", "rich"},
        f"from twofold.cli.fast_path import answer; assert answer(['reconcile', *{names!r}, '--json'])",
        {"TWOFOLD_HOME": str(world.settings.home), "PATH": "", "TWOFOLD_SHUFFLE_PARTITIONS": "1"},
    )
    assert [o["table"] for o in json.loads(said)] == [t.full_name for t in world.registry.chosen(names)]


def test_records_in_time_are_no_work_and_a_late_one_is(own: World) -> None:
    table = own.registry.find_table("delays_by_hour")
    assert not nothing_to_do(own.lake, own.registry, [table]), "the first reconcile looks at everything"
    own.reconcile(["delays_by_hour"])
    assert nothing_to_do(own.lake, own.registry, [table])
    own.append({"departures": [departure(5, "LGA", 5 * 24 * 60 + 20)]})
    assert nothing_to_do(own.lake, own.registry, [table])
    own.append({"departures": [departure(6, "EWR", 30)]})
    assert not nothing_to_do(own.lake, own.registry, [table])
    (record,) = [r for r in late_records(platform(own), table) if r.fate == "not looked at yet"]
    assert record.offset == 6


def test_a_publication_that_a_crash_kept_out_of_the_ledger_is_work(own: World) -> None:
    table = own.registry.find_table("delays_by_hour")
    own.reconcile(["delays_by_hour"])
    info = '{"cause":"backfill","run":"backfill-20130101T000000.000000Z"}'
    from deltalake import CommitProperties

    own.lake.open(table.full_name).update(
        updates={"flights": "4"},
        predicate="origin = 'JFK'",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": info}),
    )
    assert not nothing_to_do(own.lake, own.registry, [table])
    own.reconcile(["delays_by_hour"])
    assert [c["cause"] for c in corrections(own, "delays_by_hour")] == ["late", "backfill"]


def test_a_damaged_row_is_named_and_overwritten_only_by_a_repair(own: World) -> None:
    table = own.registry.find_table("delays_by_hour")
    own.reconcile(["delays_by_hour"])
    own.lake.open(table.full_name).update(updates={"flights": "99"}, predicate="origin = 'JFK'")
    found = Reconcile(platform(own), table).run(verify=True)[-1]
    (row,) = found.differences
    assert (found.unexplained, row.change, row.before, row.should) == (1, "update", {"flights": 99}, {"flights": 3})
    assert row.key == {"origin": "JFK", "hour": "2013-03-05T10:00:00+00:00"}
    with pytest.raises(UnexplainedDifference, match=r"origin=JFK .*flights is 99, should be 3"):
        require_explained([found], [])
    assert unexplained_changes(own.lake, table) == 1
    assert [c["cause"] for c in corrections(own, "delays_by_hour")] == ["late"]

    _, repaired = Reconcile(platform(own), table).repair(found)
    assert (repaired.cause, repaired.updated, repaired.unexplained) == ("repair", 1, 0)
    last = corrections(own, "delays_by_hour")[-1]
    assert (last["cause"], json.loads(last["before"])["flights"], json.loads(last["after"])["flights"]) == (
        "repair",
        99,
        3,
    )
    assert unexplained_changes(own.lake, table) == 0
    chapters = read_history(own.lake, table, HOUR).versions
    assert [c.by for c in chapters][-3:] == ["late", "unknown", "repair"]


def test_late_records_of_a_table_that_drops_them_are_listed_by_offset(spark: SparkSession, tmp_path: Path) -> None:
    registry = load()
    table = registry.find_table("delays_by_hour")
    drops = replace(table, late="drop")
    registry = replace(registry, tables={**registry.tables, drops.full_name: drops})
    world = late_departure_world(spark, Settings(home=tmp_path, shuffle_partitions=1), registry, [table.name])
    outcome = Reconcile(platform(world), drops).run(verify=True)[-1]
    assert (outcome.touched, outcome.changed, outcome.unexplained) == (1, 0, 0)
    (record,) = late_records(platform(world), drops)
    assert (record.offset, record.late_by_ms, record.fate) == (LATE_OFFSET, LATE_BY_MS, "dropped")


def _correct(world: World) -> list[RunResult]:
    return world.reconcile(["plant.hours"], verify=True)


def _backfill(world: World) -> list[RunResult]:
    return [recompute(platform(world), world.registry.find_table("plant.hours"), ZERO)]


@pytest.mark.parametrize(("before", "written"), [(_correct, 0), (_backfill, 2)])
def test_a_stream_that_begins_after_a_batch_run_writes_all_rows(
    spark: SparkSession, tmp_path: Path, before: Callable[[World], list[RunResult]], written: int
) -> None:
    """What a batch knows to be closed when no stream has begun is no reason for a stream to leave other rows out."""
    settings = Settings(home=tmp_path / "home", shuffle_partitions=1)
    world = World(spark, settings, "plant", plant(tmp_path / "declared"))
    world.append({TOPIC: [reading("a", 0.1, 1.0), reading("b", 0.5, 5.0), reading("a", 1, 7.0), reading("a", 9, 1.0)]})
    world.append({TOPIC: [reading("a", 0.3, 4.0)]})
    outcomes = before(world)
    assert (sum(o.changed for o in outcomes), sum(o.unexplained or 0 for o in outcomes)) == (written, 0)
    world.maintain(world.all_tables)
    world.append({TOPIC: [reading("a", 19, 1.0), reading("b", 19, 1.0)]})
    world.maintain(world.all_tables)
    assert [o for o in _correct(world) if o.unexplained] == []
    assert hours(world) == {("a", 0): 5.0, ("b", 0): 5.0, ("a", 1): 7.0, ("a", 9): 1.0, ("a", 19): 1.0, ("b", 19): 1.0}
