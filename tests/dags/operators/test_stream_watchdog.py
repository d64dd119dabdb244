"""What the stream DAG does about the symptoms that `twofold status` finds, and the events that it sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from twofold.dags.operators.stream_watchdog import is_by_stream, stream_events
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.file_locks import exclusive
from twofold.infra.project.settings import Settings


def symptom(subject: str | None, text: str, *, hint: str = "", restarts: str = "") -> dict[str, Any]:
    return {"subject": subject, "text": text, "hint": hint, "restarts": restarts, "watched": True}


def status(*symptoms: dict[str, Any]) -> dict[str, Any]:
    """The parts of a status that the task reads, with these symptoms."""
    programs = {"flights": ["broker", "stream-flights"]}
    return {"queries": [], "tables": [], "symptoms": symptoms, "programs": programs}


def down(state: str) -> dict[str, Any]:
    return status(symptom("stream-flights", f"stream-flights is {state}", restarts="stream-flights"))


@pytest.fixture
def watch(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Callable[..., tuple[Any, list[str]]]:
    """Runs the task against one status after the other; what it returned, and what it restarted."""
    from airflow.sdk import DAG, AssetAlias

    from twofold.dags.operators.stream_watchdog import StreamOperator

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

        monkeypatch.setattr("twofold.infra.process.supervisor.restart", restart)
        monkeypatch.setattr("twofold.dags.operators.stream_watchdog.RESTART_WAIT_S", 0)
        with DAG("flights.stream", schedule=None):
            task = StreamOperator(task_id="watch", domain="flights", changes=AssetAlias("flights.changed"))
        context = {"ti": SimpleNamespace(xcom_pull=lambda **_: None)}
        return type(task).execute.__wrapped__(task, context), restarted  # type: ignore[attr-defined]

    return run


def test_a_stopped_stream_is_started_again(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    result, restarted = watch(down("STOPPED"), status())
    assert (result["restarted"], result["symptoms"], restarted) == (["stream-flights"], [], ["stream-flights"])


def test_a_stream_that_does_not_come_back_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"is BACKOFF\. stream-flights was restarted\.\n.*logs"):
        watch(down("STOPPED"), down("BACKOFF"))
    with pytest.raises(AirflowFailException, match="spawn error"):
        watch(down("BACKOFF"), comes_back=False)


def test_a_stall_restarts_the_driver_and_still_fails(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    stalled = symptom("flights.ingest", "12 records wait", restarts="stream-flights")
    with pytest.raises(AirflowFailException, match=r"^12 records wait\. stream-flights was restarted"):
        watch(status(stalled), status())


def test_the_watch_of_a_stream_fails_for_what_is_its_own(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    others = [
        symptom("trains.ingest", "trains.ingest has failed"),
        symptom("stream-trains", "stream-trains is FATAL", restarts="stream-trains"),
        {**symptom("flights.flights", "an output has failed"), "watched": False},
    ]
    result, restarted = watch(status(*others))
    assert (result["symptoms"], restarted) == ([each["text"] for each in others], [])
    own = [symptom(None, "All is down", hint="Start it."), symptom("flights.landings", "40 are lost", hint="Say so.")]
    with pytest.raises(AirflowFailException, match=r"^All is down; 40 are lost\.\nHint: Start it\. Say so\."):
        watch(status(*others, *own))


def test_a_stream_of_a_domain_that_is_not_run_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights is not supervised.*\n.*\./twofold up"):
        watch({**status(), "programs": {}})


def test_while_the_platform_is_being_started_nothing_is_found(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with exclusive(Settings.from_environment().start_lock), pytest.raises(AirflowSkipException, match="up is at work"):
        watch(status())


def table(name: str, version: int | None) -> dict[str, Any]:
    return {"name": name, "version": version, "rows": 7, "corrections": 2}


def test_tables_with_a_new_version_since_the_last_look_have_an_event() -> None:
    closed = {"hours": "2013-01-05T11:00:00+00:00", "flights": None}
    queries = [{"domain": "flights", "query": name, "watermark": at} for name, at in closed.items()]
    tables = [
        table("flights.hours", 5),
        table("flights.flights", 3),
        table("flights.new", 1),
        table("flights.no", None),
    ]
    given = {**status(), "queries": queries, "tables": tables}
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
