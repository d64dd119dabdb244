"""When the demo goes on, and what it shows."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from twofold.demo.run.dag_runs import _doing
from twofold.demo.run.demo_command import has_caught_up, has_caught_up_with_topics, print_account
from twofold.demo.run.demo_report import Account, TableAccount, TopicAccount
from twofold.demo.run.live_view import LiveTraffic, moving
from twofold.demo.traffic.producer import Progress
from twofold.infra.airflow.airflow_api import TaskState
from twofold.infra.project.settings import Settings
from twofold.status.parts.snapshot import Fault, PartitionState, QueryState, Snapshot, TableState, TopicState

AT = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = TableAccount(
    name="flights.hours",
    rows=10,
    by_stream=9,
    late=2,
    corrected=1,
    unexplained=0,
    compared=9,
    missing=0,
    extra=0,
    changed=0,
)
TOPIC = TopicAccount(
    name="flights.departures", records=9, acknowledged=9, events=8, quarantined=1, missing=0, repeated=0, misjudged=0
)


def snapshot(*, lag: int | None = 0, behind: int | None = 0) -> Snapshot:
    partition = PartitionState(partition=0, earliest=0, latest=1234, next=1200, lag=lag)
    query = QueryState(
        domain="flights",
        query="hours",
        batch=3,
        inputs={},
        held_back_by=None,
        watermark=None,
        rows_in=1,
        rows_out=1,
        batch_s=0.2,
        freshness_s=None,
        updated_at=AT,
        behind=behind,
        error="",
    )
    return Snapshot(
        at=AT,
        processes=[],
        topics=[TopicState(name="flights.departures", partitions=[partition], events=1150, quarantined=50)],
        queries=[query],
        tables=[
            TableState(name="flights.hours", strategy="stateful", rows=777, late=66, corrections=5, version=2),
        ],
        faults={"[something]": Fault("it is wrong")},
    )


@pytest.mark.parametrize(
    ("lag", "behind", "caught_up"), [(0, 0, True), (1, 0, False), (0, 1, False), (None, 0, False), (0, None, True)]
)
def test_the_streams_have_caught_up_when_nothing_waits_anywhere(
    lag: int | None, behind: int | None, caught_up: bool
) -> None:
    assert has_caught_up(snapshot(lag=lag, behind=behind)) is caught_up


@pytest.mark.parametrize(("strategy", "caught_up"), [("stateful", False), ("touched", True)])
def test_streams_of_topics_catch_up_before_tables_of_tables(strategy: str, caught_up: bool) -> None:
    now = snapshot(behind=1)
    now = replace(now, tables=[replace(table, strategy=strategy) for table in now.tables])
    assert has_caught_up_with_topics(now) is caught_up
    assert not has_caught_up(now)
    assert not has_caught_up_with_topics(replace(now, topics=snapshot(lag=1).topics))


def test_without_a_terminal_progress_is_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed = LiveTraffic(
        Settings(home=tmp_path), "flights", date(2013, 1, 1), date(2013, 2, 4), 60, rest=date(2013, 2, 1)
    )
    first, later = snapshot(lag=34), snapshot(lag=0, behind=7)
    partition = replace(later.topics[0].partitions[0], latest=1434, next=1400)
    later = replace(later, at=AT + timedelta(seconds=10), topics=[replace(later.topics[0], partitions=[partition])])
    long = [replace(later.queries[0], query="a" * 40)]
    with moving() as show:
        show(feed, first)
        show(feed, replace(first, at=AT + timedelta(seconds=1)))
        show(feed, later)
        show(feed, replace(later, at=AT + timedelta(seconds=20), queries=long))
    assert capsys.readouterr().out.splitlines() == [
        "connecting  sent 0/s, ingested 0/s, lag 34",
        "connecting  sent 20/s, ingested 20/s, lag 0; behind 1: hours",
        "connecting  sent 0/s, ingested 0/s, lag 0; behind 1",
    ]


def test_the_traffic_rests_at_a_day_until_it_is_reported_to_go_on(tmp_path: Path) -> None:
    feed = LiveTraffic(
        Settings(home=tmp_path), "flights", date(2013, 1, 1), date(2013, 2, 4), 60, rest=date(2013, 2, 1)
    )

    def reach(day: datetime) -> threading.Thread:
        progress = Progress(sent=0, acknowledged={}, event_time=day, elapsed_s=0)
        thread = threading.Thread(target=feed._keep, args=(progress,), daemon=True)
        thread.start()
        return thread

    reach(datetime(2013, 1, 31, 23, 59, tzinfo=UTC)).join(10)
    assert not feed.rests
    waiting = reach(datetime(2013, 2, 1, tzinfo=UTC))
    waiting.join(0.5)
    assert (feed.rests, waiting.is_alive()) == (True, True)
    feed.go_on()
    waiting.join(10)
    reach(datetime(2013, 2, 2, tzinfo=UTC)).join(10)
    assert not feed.rests
    assert not waiting.is_alive()


def test_what_a_dag_does_is_what_is_not_done() -> None:
    def task(name: str, state: str | None) -> TaskState:
        return TaskState(task_id=name, state=state, try_number=1, map_index=-1)

    tasks = [
        task("recompute", "success"),
        task("flights.hours", "running"),
        task("announce", "running"),
        task("x", None),
    ]
    assert _doing(tasks, 23) == "running hours, announce"
    assert _doing(tasks, 22) == "running 2"


@pytest.mark.parametrize(
    ("table", "topic", "is_right"),
    [
        ({}, {}, True),
        ({"unexplained": 1}, {}, False),
        ({"unexplained": None}, {}, False),
        ({"missing": 1}, {}, False),
        ({"extra": 1}, {}, False),
        ({"changed": 1}, {}, False),
        ({}, {"missing": 1}, False),
        ({}, {"repeated": 1}, False),
        ({}, {"misjudged": 1}, False),
    ],
)
def test_an_account_is_right_when_every_line_is(
    table: dict[str, int | None],
    topic: dict[str, int],
    is_right: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    account = Account(
        start=date(2013, 1, 1),
        end=date(2013, 2, 4),
        topics=[TopicAccount(**{**vars(TOPIC), **topic})],
        tables=[TableAccount(**{**vars(TABLE), **table})],
    )
    assert account.is_right is is_right
    print_account(account)
    said = capsys.readouterr().out
    assert ("✗" not in said) is is_right
    assert ("No record is lost" in said) is is_right
