"""What the stream DAG does about the health that `twofold status` finds, and the events that it sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
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
from twofold.status.snapshot import StreamHealth

WELL = StreamHealth(
    driver="stream-flights", down={}, missing=[], stalled=[], failed=[], slow=[], lost=[], captures=[]
)  # fmt: skip


def status(**found: Any) -> dict[str, Any]:
    """The parts of a status that the task reads, with what is found about the stream."""
    health = asdict(replace(WELL, **found))
    return {"queries": [], "tables": [], "problems": [], "health": {"flights": health}}


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
    result, restarted = watch(status(down={"stream-flights": "STOPPED"}), status())
    assert (result["restarted"], result["problems"], restarted) == (["stream-flights"], [], ["stream-flights"])


def test_a_stream_that_does_not_come_back_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    down = status(down={"stream-flights": "BACKOFF"})
    with pytest.raises(AirflowFailException, match="stream-flights was restarted and is BACKOFF"):
        watch(down, down)
    with pytest.raises(AirflowFailException, match="spawn error"):
        watch(down, comes_back=False)


def test_a_stall_restarts_the_driver_and_still_fails(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"12 records wait.*The driver was restarted"):
        watch(status(stalled=["ingest: 12 records wait"]))


def test_for_a_platform_that_is_down_the_hint_is_to_start_it(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"broker: not supervised.*\n.*\./twofold up"):
        watch(status(missing=["broker"]))


def test_a_stream_of_a_domain_that_is_not_run_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights is not supervised.*\n.*\./twofold up"):
        watch({**status(), "health": {}})


def test_while_the_platform_is_being_started_nothing_is_found(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with exclusive(Settings.from_environment().start_lock), pytest.raises(AirflowSkipException, match="up is at work"):
        watch(status())


def test_lost_records_fail_the_task_though_all_runs(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"\[40, 60\) are lost: gone.*\n.*\./twofold acknowledge"):
        watch(status(lost=["flights.landings, partition 2: offsets [40, 60) are lost: gone"]))
    assert watch(status()) == ({"restarted": [], "problems": [], "versions": {}}, [])


def test_a_lost_capture_fails_the_task(watch: Callable[..., tuple[Any, list[str]]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"flights\.planes: the slot is gone\.\n.*\./twofold doctor"):
        watch(status(captures=["flights.planes: the slot is gone"]))


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
