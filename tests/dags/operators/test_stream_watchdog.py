"""What the stream DAG finds in `./twofold status`, and what it does about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from dags.operators.stream_watchdog import StreamLimits, examine, is_by_stream, stream_events
from infra.delta.delta_writer import CommitTag, Writer
from infra.delta.lake import Lake
from infra.errors import ProcessFailed
from infra.process.file_locks import exclusive
from infra.settings import Settings

AT = "2013-01-05T12:00:00+00:00"
LONG_AGO, JUST_NOW = "2013-01-05T11:50:00+00:00", "2013-01-05T11:59:59+00:00"


def process(name: str, state: str = "RUNNING", uptime_s: float | None = 3_600.0) -> dict[str, Any]:
    return {"name": name, "state": state, "pid": 7, "uptime_s": uptime_s}


def query(
    name: str, updated_at: str = JUST_NOW, freshness_s: float = 0.5, behind: int | None = 0, error: str = ""
) -> dict[str, Any]:
    return {
        "domain": "flights", "query": name, "updated_at": updated_at, "freshness_s": freshness_s, "behind": behind,
        "error": error,
    }  # fmt: skip


def gap(topic: str, acknowledged_at: str | None = None) -> dict[str, Any]:
    return {
        "topic": topic, "partition": 2, "start": 40, "end": 60, "why": "gone", "acknowledged_at": acknowledged_at,
    }  # fmt: skip


def status(
    *processes: dict[str, Any],
    queries: tuple[dict[str, Any], ...] = (),
    lag: int | None = 0,
    gaps: tuple[dict[str, Any], ...] = (),
    captures: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    topics = [
        {"name": "flights.departures", "partitions": [{"partition": 0, "lag": lag}]},
        {"name": "trains.departures", "partitions": [{"partition": 0, "lag": 1_000_000}]},
    ]
    return {
        "at": AT, "processes": list(processes), "topics": topics, "queries": list(queries), "problems": [],
        "gaps": list(gaps), "captures": list(captures), "tables": [],
    }  # fmt: skip


def look(given: dict[str, Any], *, broker: bool = True) -> Any:
    return examine(given, "flights", broker=broker, bounds=StreamLimits())


UP = (process("broker"), process("stream-flights"), process("stream-trains", "FATAL"))


def test_a_stream_that_runs_and_has_nothing_to_do_is_well() -> None:
    assert look(status(*UP, queries=(query("ingest", LONG_AGO), query("flights", LONG_AGO)))) == look(status(*UP))
    assert (look(status(*UP)).down, look(status(*UP)).stalled, look(status(*UP)).slow) == ({}, (), ())


def test_what_does_not_run_is_found() -> None:
    assert look(status(process("broker", "BACKOFF"), process("stream-flights", "STOPPED"))).down == {
        "broker": "BACKOFF", "stream-flights": "STOPPED",
    }  # fmt: skip


def test_what_is_not_supervised_is_missing() -> None:
    assert look(status()).missing == ("broker", "stream-flights")
    assert look(status(process("stream-flights")), broker=False).missing == ()


def test_records_that_wait_while_nothing_moves_are_a_stall() -> None:
    assert look(status(*UP, queries=(query("ingest", LONG_AGO),), lag=12)).stalled == (
        "ingest: 12 records wait, no micro-batch for 300 s",
    )
    assert look(status(*UP, queries=(query("ingest", JUST_NOW),), lag=12)).stalled == ()
    assert look(status(*UP, lag=12)).stalled == ("ingest: 12 records wait, no micro-batch for 300 s",)


def test_a_table_that_cannot_start_is_named_and_restarts_nothing() -> None:
    found = look(status(*UP, queries=(query("ingest"), query("flights", LONG_AGO, behind=4, error="no column x"))))
    assert (found.failed, found.stalled, found.down) == (("flights has failed: no column x",), (), {})


def test_versions_that_wait_while_a_table_does_not_move_are_a_stall() -> None:
    queries = (query("ingest"), query("flights", LONG_AGO, behind=4))
    assert look(status(*UP, queries=queries)).stalled == ("flights: 4 versions wait, no micro-batch for 300 s",)


def test_a_driver_that_has_just_started_is_given_time() -> None:
    young = (process("broker"), process("stream-flights", uptime_s=20))
    assert look(status(*young, queries=(query("ingest", LONG_AGO),), lag=12)).stalled == ()


def test_a_table_that_declares_its_freshness_is_held_to_it() -> None:
    given = status(*UP, queries=(query("ingest", freshness_s=61), query("flights", freshness_s=61)))
    found = examine(given, "flights", broker=True, bounds=StreamLimits(tables_s={"flights": 60}))
    assert found.slow == ("flights: rows are visible 61 s after the broker had them",)


def test_rows_that_become_visible_too_late_are_slow_only_while_they_come() -> None:
    assert look(status(*UP, queries=(query("ingest", freshness_s=901),))).slow == (
        "ingest: rows are visible 901 s after the broker had them",
    )
    assert look(status(*UP, queries=(query("ingest", LONG_AGO, freshness_s=901),))).slow == ()


def test_lost_records_of_the_domain_are_found_until_acknowledged() -> None:
    known = gap("flights.departures", acknowledged_at=AT)
    assert look(status(*UP, gaps=(gap("trains.departures"), known, gap("flights.landings")))).lost == (
        "flights.landings, partition 2: [40, 60) is lost: gone",
    )


def test_a_capture_of_the_domain_that_lost_changes_is_found() -> None:
    captures = (
        {"topic": "flights.crews", "fault": ""},
        {"topic": "flights.planes", "fault": "the replication slot is gone"},
        {"topic": "trains.crews", "fault": "the replication slot is gone"},
    )
    assert look(status(*UP, captures=captures)).captures == ("flights.planes: the replication slot is gone",)


@pytest.fixture
def watch(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Callable[..., tuple[Any, list[str]]]:
    """Runs the task against one status after the other; what it returned, and what it restarted."""
    from airflow.sdk import DAG, AssetAlias

    from dags.operators.stream_watchdog import StreamOperator

    def run(*statuses: dict[str, Any], comes_back: bool = True) -> tuple[Any, list[str]]:
        for number, one in enumerate(statuses):
            (tmp_path / f"status-{number}").write_text(json.dumps(one))
        stand_in(
            "import pathlib, sys\nfiles = sorted(pathlib.Path(sys.argv[0]).parent.glob('status-*'))\n"
            "print(files[0].read_text())\nlen(files) > 1 and files[0].unlink()"
        )
        restarted: list[str] = []

        def restart(_: Any, name: str) -> None:
            restarted.append(name)
            if not comes_back:
                raise ProcessFailed(f"{name}: spawn error")

        monkeypatch.setattr("infra.process.supervisor.restart", restart)
        monkeypatch.setattr("dags.operators.stream_watchdog.SETTLE_S", 0)
        with DAG("flights.stream", schedule=None):
            task = StreamOperator(
                task_id="watch", domain="flights", bounds=StreamLimits(), changes=AssetAlias("flights.changed")
            )
        context = {"ti": SimpleNamespace(xcom_pull=lambda **_: None)}
        return type(task).execute.__wrapped__(task, context), restarted  # type: ignore[attr-defined]

    return run


def test_a_stopped_stream_is_started_again(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    down = status(process("broker"), process("stream-flights", "STOPPED", None))
    result, restarted = watch(down, status(*UP))
    assert (result["restarted"], result["problems"], restarted) == (["stream-flights"], [], ["stream-flights"])


def test_a_stream_that_does_not_come_back_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    down = status(process("broker"), process("stream-flights", "BACKOFF", None))
    with pytest.raises(AirflowFailException, match="stream-flights was restarted and is BACKOFF"):
        watch(down, down)
    with pytest.raises(AirflowFailException, match="spawn error"):
        watch(down, comes_back=False)


def test_a_stall_restarts_the_driver_and_still_fails(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"12 records wait.*The driver was restarted"):
        watch(status(*UP, queries=(query("ingest", LONG_AGO),), lag=12))


def test_for_a_platform_that_is_down_the_hint_is_to_start_it(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"not supervised.*\n.*\./twofold up"):
        watch(status())


def test_while_the_platform_is_being_started_nothing_is_found(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with exclusive(Settings.from_environment().start_lock), pytest.raises(AirflowSkipException, match="up is at work"):
        watch(status())


def test_lost_records_fail_the_task_though_all_runs(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"\[40, 60\) is lost: gone.*\n.*\./twofold acknowledge"):
        watch(status(*UP, gaps=(gap("flights.landings"),)))
    assert watch(status(*UP, gaps=(gap("flights.landings", AT),))) == (
        {"restarted": [], "problems": [], "versions": {}},
        [],
    )


def test_a_lost_capture_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights\.planes: the slot is gone\.\n.*\./twofold doctor"):
        watch(status(*UP, captures=({"topic": "flights.planes", "fault": "the slot is gone"},)))


def table(name: str, version: int | None) -> dict[str, Any]:
    return {"name": name, "version": version, "rows": 7, "corrections": 2}


def test_tables_with_a_new_version_since_the_last_look_have_an_event() -> None:
    queries = ({**query("hours"), "watermark": "2013-01-05T11:00:00+00:00"}, {**query("flights"), "watermark": None})
    tables = [
        table("flights.hours", 5),
        table("flights.flights", 3),
        table("flights.new", 1),
        table("flights.no", None),
    ]
    given = {**status(*UP, queries=queries), "tables": tables}
    before = {"flights.hours": 4, "flights.flights": 3, "flights.no": 1}
    assert stream_events(given, "flights", before) == {
        "flights.hours": {
            "cause": "stream",
            "version": 5,
            "rows": 7,
            "closed_before": "2013-01-05T11:00:00+00:00",
            "corrections": 2,
        }
    }


def test_a_version_that_batch_work_made_is_no_event_of_the_stream(tmp_path: Path) -> None:
    lake, name = Lake(Settings(home=tmp_path)), "flights.hours"
    kinds = pa.schema([("id", pa.int64())])
    lake.ensure(name, kinds, statistics=["id"])
    for number, cause in enumerate(("stream", "late", "stream", "late"), start=1):
        rows = pa.table({"id": [number]}, schema=kinds)
        Writer(lake, name).append(rows, CommitTag(app="test", version=number, info={"cause": cause}))
    spans = {(0, 2): True, (1, 2): False, (1, 3): True, (3, 4): False}
    assert {span: is_by_stream(lake, name, *span) for span in spans} == spans
