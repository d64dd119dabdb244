"""What of a snapshot needs a restart or a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.tables.declared import a_table, bound_as
from twofold.batch.ledgers.audit_history import LastAudit
from twofold.infra.capture.captured_table import CaptureState
from twofold.infra.process.supervisor import ProcessState, State
from twofold.infra.project.settings import Settings
from twofold.status.health import Need, found_needs, needs_of, stream_health
from twofold.status.snapshot import PartitionState, QueryState, Snapshot, StreamHealth, TableState, TopicState
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.events.lost_offsets import Gap

AT = datetime(2013, 1, 5, 12, tzinfo=UTC)
AUDIT = LastAudit(at=AT, turn=0, of=1, rows=9_000, unexplained=1_200, all_since=AT)
LONG_AGO, JUST_NOW = AT - timedelta(minutes=10), AT - timedelta(seconds=1)


def process(name: str, state: State = "RUNNING", uptime_s: float | None = 3_600.0) -> ProcessState:
    return ProcessState(name=name, state=state, pid=7, uptime_s=uptime_s, starts=1, detail="")


def query(name: str, updated_at: datetime = JUST_NOW, **facts: Any) -> QueryState:
    moved = {"batch": 1, "watermark": None, "inputs": {}, "held_back_by": None, "rows_in": 0, "rows_out": 0}
    found = {"batch_s": 0.1, "freshness_s": 0.5, "behind": 0, "error": "", **facts}
    return QueryState(domain="flights", query=name, updated_at=updated_at, **moved, **found)


def gap(topic: str, acknowledged_at: datetime | None = None) -> Gap:
    return Gap(
        topic=topic, partition=2, start=40, end=60, recorded_at=AT, why="gone", acknowledged_at=acknowledged_at
    )  # fmt: skip


def topic(name: str, lag: int | None) -> TopicState:
    waiting = PartitionState(partition=0, earliest=0, latest=lag, next=0, lag=lag)
    return TopicState(name=name, partitions=[waiting], events=None, quarantined=None)


def look(
    *processes: ProcessState, lag: int | None = 0, bootstrap: str = "", freshness: str | None = None, **facts: Any
) -> StreamHealth:
    """The health of the stream of flights, whose other domain has much to do."""
    now = Snapshot(
        at=AT,
        processes=processes,
        topics=[topic("flights.departures", lag), topic("trains.departures", 1_000_000)],
        tables=[],
        problems=[],
        **{"queries": [], **facts},
    )
    table = bound_as(a_table(freshness=freshness), "flights", "flights")
    registry = Registry(topics={}, tables={table.full_name: table})
    return stream_health(now, "flights", Settings(home=Path("home"), bootstrap=bootstrap), registry)


UP = (process("broker"), process("stream-flights"), process("stream-trains", "FATAL"))


def test_a_stream_that_runs_and_has_nothing_to_do_is_well() -> None:
    idle = look(*UP, queries=[query("ingest", LONG_AGO), query("flights", LONG_AGO)])
    assert idle == look(*UP)
    assert (idle.down, idle.missing, idle.stalled, idle.failed, idle.slow, idle.lost) == ({}, [], [], [], [], [])


def test_what_does_not_run_is_found() -> None:
    assert look(process("broker", "BACKOFF"), process("stream-flights", "STOPPED")).down == {
        "broker": "BACKOFF", "stream-flights": "STOPPED",
    }  # fmt: skip


def test_what_is_not_supervised_is_missing() -> None:
    assert look().missing == ["broker", "stream-flights"]
    assert look(process("stream-flights"), bootstrap="broker.example:9092").missing == []


def test_records_that_wait_while_nothing_moves_are_a_stall() -> None:
    stall = ["ingest: 12 records wait, no micro-batch for 300 s"]
    assert look(*UP, queries=[query("ingest", LONG_AGO)], lag=12).stalled == stall
    assert look(*UP, queries=[query("ingest", JUST_NOW)], lag=12).stalled == []
    assert look(*UP, lag=12).stalled == stall


def test_a_table_that_cannot_start_is_named_and_restarts_nothing() -> None:
    found = look(*UP, queries=[query("ingest"), query("flights", LONG_AGO, behind=4, error="no column x")])
    assert (found.failed, found.stalled, found.down) == (["flights has failed: no column x"], [], {})


def test_versions_that_wait_while_a_table_does_not_move_are_a_stall() -> None:
    queries = [query("ingest"), query("flights", LONG_AGO, behind=4)]
    assert look(*UP, queries=queries).stalled == ["flights: 4 versions wait, no micro-batch for 300 s"]


def test_a_reader_that_may_lose_history_is_named_at_half_of_its_time() -> None:
    queries = [
        query("flights", LONG_AGO, behind=3, behind_s=37 * 3_600.0),
        query("landings", LONG_AGO, behind=10_001, behind_s=60.0),
        query("planes", LONG_AGO, behind=3, behind_s=35 * 3_600.0),
        query("ingest", LONG_AGO, behind=None),
    ]
    now = Snapshot(at=AT, processes=[], topics=[], tables=[], problems=[], queries=queries)
    end = "after 3 days, or 20,000 versions, it begins from a snapshot"
    assert {need.name: need.text for need in found_needs(now)} == {
        name: f"{name} leaves {unread} of its inputs unread, the first for {age}; {end}"
        for name, unread, age in (
            ("flights.flights", "3 versions", "37 h 00 min"),
            ("flights.landings", "10,001 versions", "1 min 00 s"),
        )
    }


def test_a_driver_that_has_just_started_is_given_time() -> None:
    young = (process("broker"), process("stream-flights", uptime_s=20))
    assert look(*young, queries=[query("ingest", LONG_AGO)], lag=12).stalled == []


def test_a_table_that_declares_its_freshness_is_held_to_it() -> None:
    queries = [query("ingest", freshness_s=61), query("flights", freshness_s=61)]
    assert look(*UP, queries=queries, freshness="1 minute").slow == [
        "flights: rows are visible 61 s after the broker had them"
    ]


def test_rows_that_become_visible_too_late_are_slow_only_while_they_come() -> None:
    assert look(*UP, queries=[query("ingest", freshness_s=901)]).slow == [
        "ingest: rows are visible 901 s after the broker had them"
    ]
    assert look(*UP, queries=[query("ingest", LONG_AGO, freshness_s=901)]).slow == []


def test_lost_records_of_the_domain_are_found_until_acknowledged() -> None:
    known = gap("flights.departures", acknowledged_at=AT)
    assert look(*UP, gaps=[gap("trains.departures"), known, gap("flights.landings")]).lost == [
        "flights.landings, partition 2: offsets [40, 60) are lost: gone"
    ]


def test_a_capture_of_the_domain_that_lost_changes_is_found() -> None:
    faults = {"flights.crews": "", "flights.planes": "the slot is gone", "trains.crews": "the slot is gone"}
    captures = [
        CaptureState(topic=topic, table="t", state="RUNNING", slot="s", retained_bytes=0, fault=fault)
        for topic, fault in faults.items()
    ]
    assert look(*UP, captures=captures).captures == ["flights.planes: the slot is gone"]


def test_what_is_wrong_comes_with_what_helps() -> None:
    late = TableState(
        name="flights.flights", strategy="latest", rows=1, late=None, corrections=0, version=1, audit=AUDIT
    )
    now = Snapshot(
        at=AT,
        processes=[process("broker", "FATAL"), process("stream-flights")],
        topics=[],
        tables=[late],
        queries=[query("flights", error="no column"), query("ingest", error="no broker")],
        gaps=[gap("flights.departures"), gap("flights.weather", acknowledged_at=AT)],
        problems=[],
    )
    told = "flights.departures, partition 2: offsets [40, 60) are lost: gone"
    needs = found_needs(now)
    assert needs == [
        Need(told, "flights.departures", "./twofold acknowledge"),
        Need("broker is FATAL", None, "./twofold up"),
        Need("flights.flights has failed: no column", "flights.flights", "./twofold doctor"),
        Need("flights.ingest has failed: no broker", None, "./twofold doctor"),
        Need(
            "flights.flights: audits found 1,200 rows that nothing explains",
            "flights.flights",
            "./twofold reconcile flights.flights --repair",
        ),
    ]
    assert needs_of(replace(now, problems=["the moon is down", told])) == [Need("the moon is down"), needs[0]]


def test_a_stream_that_does_not_move_needs_a_person() -> None:
    late = TableState(name="flights.flights", strategy="latest", rows=1, late=None, corrections=0, version=1)
    found = look(process("broker"), queries=[query("flights", freshness_s=1_000.0)])
    nothing: dict[str, Any] = {"topics": [], "queries": [], "problems": []}
    now = Snapshot(at=AT, processes=[process("broker")], tables=[late], health={"flights": found}, **nothing)
    assert needs_of(now) == [
        Need("stream-flights is not supervised", None, "./twofold up"),
        Need("flights.flights: rows are visible 1000 s after the broker had them", "flights.flights"),
    ]
    assert needs_of(replace(now, processes=[])) == [], "the platform is down, which is said once"


def test_what_is_wrong_keeps_its_name_while_its_numbers_change() -> None:
    late = TableState(name="flights.flights", strategy="latest", rows=1, late=None, corrections=0, version=1)
    nothing: dict[str, Any] = {"topics": [], "queries": [], "problems": []}
    seen = []
    for seconds in (1_000.0, 2_000.0):
        slow = look(*UP, queries=[query("flights", freshness_s=seconds)])
        now = Snapshot(at=AT, processes=UP, tables=[late], health={"flights": slow}, **nothing)
        seen += needs_of(now)
    assert [need.symptom for need in seen] == ["flights.flights is slow"] * 2
    assert len({need.text for need in seen}) == 2
