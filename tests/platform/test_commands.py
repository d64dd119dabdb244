"""The commands that compute do their work on a real log, and report it as JSON.

They run in this process and share its Spark session, which spares each the start of a JVM.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from cli.__main__ import main
from infra.settings import Settings
from streaming.ingest.ingest_query import Ingest
from tables.refresh.streaming_checkpoint import Checkpoint
from tests.platform.acknowledged_records import faults
from tests.servers import empty_log
from tests.worlds import World
from traffic.fault_injection import FaultInjection
from traffic.producer import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.platform, pytest.mark.spark]

HOURS, FLIGHTS, DAYS = TABLES = ["flights.delays_by_hour", "flights.flights", "flights.carrier_days"]
DEPARTURES, WEATHER = "flights.departures", "flights.weather"

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: Settings) -> Iterator[World]:
    """Two days of flights, some late, that the streams of some tables took in and nothing has corrected."""
    with empty_log(broker) as settings:
        late = FaultInjection(hours_share=0.2)
        run(settings, domain="flights", start=date(2013, 1, 1), end=date(2013, 1, 3), imperfections=late)
        # What one micro-batch brings is not late by itself, nor what was there before a stream began.
        world = World(spark, replace(settings, max_offsets=1_500, max_files=1))
        world.maintain(TABLES)
        Ingest(spark, world.lake, world.registry, "flights").start(available_now=True).awaitTermination()
        world.maintain(TABLES)
        yield world


@pytest.fixture
def command(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one that succeeds; gives its document."""
    from pyspark.sql import SparkSession

    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run_command(*arguments: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--json"])
        printed = capsys.readouterr()
        assert not ended.value.code, printed.out + printed.err
        return json.loads(printed.out)

    return run_command


def test_reconcile_corrects_what_is_late_and_only_once(command: Command) -> None:
    """The first to need two days of flights that were sent, ingested and maintained."""
    outcomes = command("reconcile", *TABLES, "--verify")
    assert {o["table"] for o in outcomes} == set(TABLES)
    assert sum(o["changed"] for o in outcomes if o["table"] == HOURS) > 0
    assert [o for o in outcomes if o["unexplained"]] == []
    assert [o["changed"] for o in command("reconcile", *TABLES)] == [0] * len(TABLES)


def test_a_backfill_puts_a_damaged_row_right(world: World, command: Command) -> None:
    command("reconcile", *TABLES)
    damaged = world.lake.open(HOURS).update(
        updates={"flights": "flights + 1"}, predicate="hour = '2013-01-01T20:00:00Z'"
    )
    [outcome] = command("backfill", HOURS, "--start", "2013-01-01", "--end", "2013-01-02")
    assert (outcome["cause"], outcome["updated"]) == ("backfill", damaged["num_updated_rows"])
    assert outcome["updated"] > 0


def test_a_replay_and_a_redrive_find_nothing_to_change(world: World, command: Command) -> None:
    command("reconcile", *TABLES)
    replayed = command("replay", DEPARTURES)
    assert {o["table"] for o in replayed} >= {DEPARTURES, f"{DEPARTURES}_quarantine"}
    assert [o for o in replayed if o["cause"] == "replay" and o["changed"]] == []
    redriven = command("redrive", WEATHER, "--reason", "no such reason")
    assert [o for o in redriven if o["changed"]] == []
    assert faults(world.settings) == {}


def test_quality_checks_the_rules_of_tables_and_writes_their_pages(command: Command) -> None:
    verdicts = command("quality", HOURS, FLIGHTS)
    assert {v["table"]: v["passed"] for v in verdicts} == {HOURS: True, FLIGHTS: True}
    assert all(v["rows"] > 0 and v["report"] for v in verdicts)


def test_an_audit_passes_tables_and_a_range_of_a_topic(command: Command) -> None:
    command("reconcile", *TABLES)
    audited = command("audit", *TABLES, "--all")
    assert audited["passed"]
    assert all(table["rows"] > 0 for table in audited["tables"])
    [log] = command("audit", WEATHER, "--from", "0:0", "--to", "0:9")["logs"]
    assert (log["topic"], log["faults"], log["records"]) == (WEATHER, [], 9)


def test_a_table_is_created_again_from_the_log_and_promoted(command: Command) -> None:
    command("reconcile", *TABLES)
    found = command("rebuild", HOURS, "--promote")
    assert (found["changed"], found["promoted"]) == (0, []), found["markdown"]
    assert found["plan"]["compared"] > 0


def test_a_lost_state_is_made_again_from_the_log(world: World, command: Command) -> None:
    """Two commands, and between them ingest and all tables of another day."""
    checkpoint = Checkpoint.of_table(world.settings, world.registry.find_table(HOURS))
    lost = checkpoint.stream
    shutil.rmtree(checkpoint.path / "state")
    made = command("recover", HOURS)
    assert (made["found"], made["rows"]["missing"], made["rows"]["extra"], made["rows"]["changed"]) == ("lost", 0, 0, 0)
    assert checkpoint.stream not in ("", lost)

    before = world.lake.rows(HOURS)
    run(world.settings, domain="flights", start=date(2013, 1, 3), end=date(2013, 1, 4), imperfections=FaultInjection())
    Ingest(world.spark, world.lake, world.registry, "flights").start(available_now=True).awaitTermination()
    world.maintain(TABLES)
    assert world.lake.rows(HOURS) > before + 30
    assert [o for o in command("reconcile", HOURS, "--verify") if o["unexplained"]] == []
