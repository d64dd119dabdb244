"""A stream is ready once its tables are there; what has failed since its start stops nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.plant import plant
from twofold.infra.errors import ProcessFailed
from twofold.infra.process import supervisor
from twofold.infra.process.service import Wait
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.project.settings import Settings
from twofold.streaming.query.progress import Progress, read, write
from twofold.streaming.stream_service import SERVICE, _failed
from twofold.tables.declare.registry import Registry

DRIVER = ProcessState(name="stream-plant", state="RUNNING", pid=7, uptime_s=60.0, starts=1, detail="")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return plant(tmp_path / "declared")


def fail(settings: Settings, ages_s: dict[str, int | None]) -> None:
    now = datetime.now(UTC)
    for query, age_s in ages_s.items():
        failed_at = None if age_s is None else now - timedelta(seconds=age_s)
        error = "" if age_s is None else f"fails at {query}"
        write(settings, Progress(domain="plant", query=query, error=error, failed_at=failed_at))


def only_wait(settings: Settings, registry: Registry) -> Wait:
    [wait] = SERVICE.ready(settings, registry)
    return wait


def test_an_error_from_before_the_driver_started_is_not_reported(settings: Settings, registry: Registry) -> None:
    fail(settings, {"hours": 5, "kept": 300, "newest": None, "gone": 5})
    assert [p.failed_at is None for p in read(settings)] == [False, False, False, True]
    assert _failed(settings, registry, "plant", 60.0) == {"plant.hours": "fails at hours"}
    assert _failed(settings, registry, "plant", 2.0) == {}


def test_a_stream_whose_queries_have_all_failed_is_ready_and_says_so(
    settings: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "state", lambda _: [DRIVER])
    fail(settings, dict.fromkeys(["ingest", *(table.name for table in registry.tables.values())], 5))
    monkeypatch.setattr("twofold.infra.delta.lake.Lake.exists", lambda _, name: name in registry.topics)
    wait = only_wait(settings, registry)
    assert wait.title == "Stream of the domain plant"
    faults = [str(fault) for fault in wait.run() or ()]
    assert len(faults) == len(registry.tables) + 1
    assert "plant.ingest has failed: fails at ingest." in faults


def test_a_driver_that_starts_again_and_again_is_not_waited_for(
    settings: Settings, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "state", lambda _: [replace(DRIVER, state="BACKOFF", starts=4)])
    with pytest.raises(ProcessFailed, match="The stream of plant is BACKOFF, started 4 times"):
        only_wait(settings, registry).run()
