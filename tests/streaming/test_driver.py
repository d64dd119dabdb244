"""A driver keeps each query by itself: one that fails, cannot start, or is in other hands stops no other."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.plant import DAYS_FILE, HOURS, plant
from tests.tables.declared import TOPIC_FILE, edited, written
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import BadDeclaration, ProcessFailed, SchemaMismatch
from twofold.infra.process import kept_running
from twofold.infra.process.file_locks import exclusive, is_held
from twofold.infra.process.kept_running import KeptRunning
from twofold.infra.project.settings import Settings
from twofold.streaming import driver
from twofold.streaming.driver import QueryFailures, _starters
from twofold.streaming.query import progress
from twofold.streaming.query.progress import Progress, read
from twofold.streaming.query.step_shares import Shares
from twofold.tables.declare.registry import load
from twofold.tables.declare.table import Table
from twofold.tables.refresh.open_platform import Platform, ensure_domain, ensure_topics_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Query:
    """A query that runs until it is stopped or fails."""

    name = "hours"
    isActive = True

    def exception(self) -> Exception | None:
        return None if self.isActive else ValueError("its state is damaged")

    def stop(self) -> None:
        self.isActive = False

    awaitTermination = stop


@pytest.fixture
def started() -> list[Query]:
    return []


def kept(settings: Settings, started: list[Query]) -> KeptRunning:
    def start() -> Query:
        started.append(Query())
        return started[-1]

    failures = QueryFailures(settings, "plant", "hours")
    return KeptRunning("plant.hours", start, settings.stream_lock("plant.hours"), failures)


def test_a_query_waits_while_its_checkpoint_is_created_again(settings: Settings, started: list[Query]) -> None:
    query = kept(settings, started)
    with exclusive(settings.stream_lock("plant.hours")) as ours:
        assert ours
        query.keep()
    assert started == []
    query.keep()
    assert len(started) == 1


def test_the_checkpoint_of_a_query_is_held_until_it_stops_or_fails(settings: Settings, started: list[Query]) -> None:
    lock, query = settings.stream_lock("plant.hours"), kept(settings, started)
    query.keep()
    assert is_held(lock)
    started[-1].isActive = False
    query.keep()
    assert not is_held(lock)
    time.sleep(1.1)  # its pause
    query.keep()
    assert is_held(lock)
    query.stop()
    assert (len(started), is_held(lock)) == (2, False)


def test_what_a_query_failed_with_is_reported_until_it_runs_again(
    settings: Settings, started: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_running, "_SETTLED_S", 0.0)
    query = kept(settings, started)
    query.keep()
    started[-1].isActive = False
    query.keep()
    assert [p.error for p in read(settings, "plant")] == ["its state is damaged"]
    time.sleep(1.1)  # its pause
    for _ in range(2):
        query.keep()
    assert [p.error for p in read(settings, "plant")] == [""]


def test_a_query_without_a_package_says_which_extra_brings_it(settings: Settings) -> None:
    QueryFailures(settings, "plant", "hours").note(ModuleNotFoundError("No module named 'fastavro'", name="fastavro"))
    (failed,) = read(settings, "plant")
    assert failed.error.startswith("The package fastavro, for records in Avro, is not installed.")


def test_an_error_that_is_taken_back_undoes_no_micro_batch(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query whose first micro-batch ends just then would seem to be behind until its inputs change again."""
    progress.note_error(settings, "plant", "hours", "it failed")
    stored, newer = progress.last_of, Progress(domain="plant", query="hours", versions={"plant.readings": 3})
    ends = threading.Thread(target=progress.write, args=(settings, newer))

    def read_meanwhile(*of: Any) -> Progress:
        last = stored(*of)
        ends.start()
        ends.join(0.2)
        return last

    monkeypatch.setattr(progress, "last_of", read_meanwhile)
    progress.note_error(settings, "plant", "hours", "")
    ends.join()
    assert stored(settings, "plant", "hours") == newer


def test_what_keeps_a_whole_driver_from_running_is_reported(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SchemaMismatch("plant.readings: the column value is declared as string")

    monkeypatch.setattr(driver, "load", lambda: plant(tmp_path))
    monkeypatch.setattr(driver, "ensure_topics", refuse)
    with pytest.raises(SchemaMismatch):
        driver.drain(settings, "plant", ingest=True, tables=None)
    assert [(p.query, p.error[:14]) for p in read(settings, "plant")] == [("ingest", "plant.readings")]


def test_a_driver_ends_with_its_jvm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel kills a JVM where memory is short."""
    monkeypatch.setattr(driver, "_domain", lambda *_: nullcontext())
    monkeypatch.setattr(driver, "_starters", lambda *_: [])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(driver, "jvm_exit_code", lambda: -9)
    with pytest.raises(ProcessFailed, match=r"The JVM of the stream of plant ended with exit code -9\."):
        driver.run(settings, "plant")


def test_a_table_that_cannot_be_made_stops_no_other(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    # Of a type that has no elements, which Spark's analysis knows: names are looked for when the file is loaded.
    mistyped = edited(edited(HOURS, "def hours", "def mistyped"), 'F.sum("value")', 'F.sum(F.element_at("value", 1))')
    below = edited(edited(DAYS_FILE, "def days(hours)", "def below(mistyped)"), "hours.", "mistyped.")
    registry = plant(tmp_path, mistyped=mistyped, below=below)
    lake = Lake(settings)
    faults = ensure_domain(spark, lake, registry, "plant")
    assert {name: "element_at(value, 1)" in fault.message for name, fault in faults.items()} == {
        "plant.mistyped": True,
        "plant.below": False,
    }
    assert "it reads plant.mistyped" in faults["plant.below"].message

    starters = {name: start for name, start, _ in _starters(Platform(spark, lake, registry), "plant", None, Shares(1))}
    with pytest.raises(BadDeclaration, match=r"element_at\(value, 1\)"):
        starters["mistyped"]()
    running = starters["hours"]()
    assert running.isActive
    running.stop()


TEXT_TIME = '''\
"""The year of each reading."""
from twofold import table


@table(primary_key=["sensor"], sequence_by=["year"], event_time="year", recompute_by=["sensor"])
def years(readings):
    return readings.selectExpr("sensor", "date_format(read_at, 'yyyy') AS year")
'''


def test_a_mistake_that_only_the_analysis_finds_keeps_a_table_out(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    faults = ensure_domain(spark, Lake(settings), plant(tmp_path, years=TEXT_TIME), "plant")
    assert {name: fault.message for name, fault in faults.items()} == {
        "plant.years": "tables/plant/years.py: event_time='year' is a string: expected a timestamp or a date."
    }


def test_a_mistake_is_named_before_a_changed_definition_is_refused(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, before = Lake(settings), plant(tmp_path / "before")
    ensure_domain(spark, lake, before, "plant")
    wrong = plant(tmp_path / "after", hours=edited(HOURS, 'F.sum("value")', 'F.sum(F.element_at("value", 1))'))
    monkeypatch.setattr(driver, "is_accepted", lambda *_: False)
    with pytest.raises(BadDeclaration, match=r"element_at\(value, 1\)"):
        driver._ensure(Platform(spark, lake, wrong), wrong.find_table("hours"))


def test_a_drain_goes_on_with_the_other_tables_and_then_fails(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = []

    def drain_table(_: Platform, table: Table) -> None:
        if table.name == "hours":
            raise BadDeclaration("no column valeu")
        drained.append(table.name)

    @contextmanager
    def domain(*_: object) -> Iterator[Platform]:
        yield Platform(lambda: pytest.fail("no session is needed"), Lake(settings), plant(tmp_path))

    monkeypatch.setattr(driver, "_domain", domain)
    monkeypatch.setattr(driver, "_drain_table", drain_table)
    with pytest.raises(BadDeclaration, match="valeu"):
        driver.drain(settings, "plant", ingest=False, tables=None)
    assert sorted(drained) == ["kept", "newest"]


LOGINS = """
    '''Logins.'''
    from twofold import Topic, personal
    TOPIC = Topic(
        schema={"id": "int", "customer": "string", "at": "timestamp", "mail": personal("customer")},
        event_time="at", message_key="customer", dedup_keys=["id"],
    )
    """


def test_a_driver_of_persons_destroys_keys_whose_time_has_passed(tmp_path: Path) -> None:
    lake, now = Lake(Settings(home=tmp_path / "home")), time.time_ns() // 1_000_000
    make_keys(lake.settings)
    registry = load(written(tmp_path / "tables", {"bank/logins.py": LOGINS, "other/readings.py": TOPIC_FILE}))
    for domain in registry.domains:
        ensure_topics_of(lake, registry, domain)
    platform = Platform(None, lake, registry)  # type: ignore[arg-type]
    starts = {name: start for name, start, _ in _starters(platform, "bank", None, Shares(1))}
    assert driver.KEYS not in [name for name, *_ in _starters(platform, "other", None, Shares(1))]
    with closing(KeyStore(lake.settings)) as store:
        store.forget(Person("customer", "ann"), now + 60_000)
    running = starts[driver.KEYS]()
    with closing(sqlite3.connect(lake.settings.keys_file, isolation_level=None)) as keys:
        assert keys.execute("SELECT wrapped IS NULL, forgotten_no FROM person").fetchall() == [(0, None)]
        keys.execute("UPDATE person SET forget_at_ms = ?", [now])
        for _ in range(2):  # again it changes nothing
            running.stop()
            running = starts[driver.KEYS]()
            deadline = time.monotonic() + 20
            while keys.execute("SELECT wrapped IS NULL, forgotten_no FROM person").fetchall() != [(1, 1)]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert running.isActive
    running.stop()
    assert running.exception() is None
