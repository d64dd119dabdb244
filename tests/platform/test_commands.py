"""The commands that compute do their work on a real log, and report it as JSON.

They run in this process and share its Spark session, which spares each the start of a JVM.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.late_departure import arrival, departure
from tests.servers import empty_log
from twofold.cli.__main__ import main
from twofold.infra.project.settings import Settings
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.refresh.streaming_checkpoint import Checkpoint
from twofold.testing.worlds import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.platform, pytest.mark.spark]

HOURS, FLIGHTS, DAYS = TABLES = ["flights.delays_by_hour", "flights.flights", "flights.carrier_days"]
DEPARTURES, ARRIVALS = "flights.departures", "flights.arrivals"
DAY_MIN = 24 * 60

Command = Callable[..., Any]


def take_in(world: World, records: dict[str, list[bytes]]) -> None:
    """Let a producer send the records, ingest read them, and the streams of the tables follow."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=world.settings.bootstrap_servers, acks="all")
    for topic, values in records.items():
        for value in values:
            producer.send(topic, value, key=b"key", partition=0)
    producer.close()
    Ingest(world.spark, world.lake, world.registry, "flights").start(available_now=True).awaitTermination()
    world.maintain(TABLES)


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: Settings) -> Iterator[World]:
    """Of four departures the last is late for the hour of the first, which has closed; nothing has corrected it.

    By offset: JFK at 10:05, JFK at 10:20, LGA five days later, JFK at 10:40.
    """
    with empty_log(broker) as settings:
        world = World(spark, settings, "flights")
        later = 5 * DAY_MIN
        in_time = [departure(0, "JFK", 5, 5), departure(1, "JFK", 20, 20), departure(2, "LGA", later)]
        take_in(world, {DEPARTURES: in_time, ARRIVALS: [arrival(2, later)]})
        take_in(world, {DEPARTURES: [departure(3, "JFK", 40, 35)]})
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
    outcomes = command("reconcile", *TABLES, "--verify")
    assert {o["table"] for o in outcomes} == set(TABLES)
    assert [o["changed"] for o in outcomes if o["table"] == HOURS] == [1]
    assert [o for o in outcomes if o["unexplained"]] == []
    assert [o["changed"] for o in command("reconcile", *TABLES)] == [0] * len(TABLES)


def test_a_backfill_puts_a_damaged_row_right(world: World, command: Command) -> None:
    command("reconcile", *TABLES)
    damaged = world.lake.open(HOURS).update(
        updates={"flights": "flights + 1"}, predicate="hour = '2013-03-05T10:00:00Z'"
    )
    [outcome] = command("backfill", HOURS, "--start", "2013-03-05", "--end", "2013-03-06")
    assert (outcome["cause"], outcome["updated"]) == ("backfill", 1)
    assert damaged["num_updated_rows"] == 1


def test_a_replay_and_a_redrive_find_nothing_to_change(command: Command) -> None:
    command("reconcile", *TABLES)
    replayed = command("replay", DEPARTURES)
    assert {o["table"] for o in replayed} >= {DEPARTURES, f"{DEPARTURES}_quarantine"}
    assert [o for o in replayed if o["cause"] == "replay" and o["changed"]] == []
    redriven = command("redrive", DEPARTURES, "--reason", "no such reason")
    assert [o for o in redriven if o["changed"]] == []


def test_quality_checks_the_rules_of_tables_and_writes_their_pages(command: Command) -> None:
    verdicts = command("quality", HOURS, FLIGHTS)
    assert {v["table"]: v["passed"] for v in verdicts} == {HOURS: True, FLIGHTS: True}
    assert all(v["rows"] > 0 and v["report"] for v in verdicts)


def test_an_audit_passes_tables_and_a_range_of_a_topic(command: Command) -> None:
    command("reconcile", *TABLES)
    audited = command("audit", *TABLES, "--all")
    assert audited["passed"]
    assert all(table["rows"] > 0 for table in audited["tables"])
    [log] = command("audit", DEPARTURES, "--from", "0:1", "--to", "0:4")["logs"]
    assert (log["topic"], log["faults"], log["records"]) == (DEPARTURES, [], 3)


def test_a_table_is_created_again_from_the_log_and_promoted(command: Command) -> None:
    command("reconcile", *TABLES)
    found = command("rebuild", HOURS, "--promote")
    assert (found["changed"], found["promoted"]) == (0, []), found["markdown"]
    assert found["plan"]["compared"] > 0


def test_a_lost_state_is_made_again_from_the_log(world: World, command: Command) -> None:
    checkpoint = Checkpoint.of_table(world.settings, world.registry.find_table(HOURS))
    lost = checkpoint.stream
    shutil.rmtree(checkpoint.path / "state")
    made = command("recover", HOURS)
    assert (made["found"], made["rows"]["missing"], made["rows"]["extra"], made["rows"]["changed"]) == ("lost", 0, 0, 0)
    assert checkpoint.stream not in ("", lost)

    before = world.lake.rows(HOURS)
    take_in(world, {DEPARTURES: [departure(4, "EWR", 9 * DAY_MIN), departure(5, "JFK", 9 * DAY_MIN)]})
    assert world.lake.rows(HOURS) == before + 2
    assert [o["unexplained"] for o in command("reconcile", HOURS, "--verify")] == [0]
