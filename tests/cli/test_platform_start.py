"""The order in which `up` starts services and waits for them, and what overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from tests.plant import plant
from twofold.cli import platform_start
from twofold.infra.errors import ProcessFailed, TwofoldError
from twofold.infra.process import supervisor
from twofold.infra.process.service import Service, Wait
from twofold.infra.process.supervisor import ProcessState
from twofold.infra.process.supervisord import Program
from twofold.infra.project.settings import Settings
from twofold.tables.declare.records.cover import find_cover
from twofold.tables.declare.registry import Registry


class Platform:
    """Services that note what is done with them, instead of a supervisor."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings, self.registry = settings, registry
        self.did: list[str] = []
        self.warms = Event()

    def service(self, name: str, stage: str, **more: object) -> Service[object]:
        def prepare(_: Settings) -> None:
            if more.get("prepares"):
                self.did.append(f"prepare {name}")

        def wait() -> list[TwofoldError]:
            self.did.append(f"wait {name}")
            return [ProcessFailed(f"A part of {name} has failed.")] if name == "stream" else []

        return Service(
            name=name,
            stage=stage,  # type: ignore[arg-type]
            prepare=prepare,
            programs=lambda *_: [Program(name=name, command=["true"])],
            ready=lambda *_: [Wait(name, wait)],
            **more,  # type: ignore[arg-type]
        )

    def warm_server(self) -> Service[object]:
        """One whose wait goes on from the first start, and ends once the stream is waited for."""

        def warm() -> None:
            self.did.append("warm")
            self.warms.set()

        return replace(self.service("spark", "servers"), ready=lambda *_: [Wait("spark", warm, early=True)])

    def start(self, _: Settings, programs: Sequence[Program]) -> None:
        self.did.append(f"start {' '.join(program.name for program in programs)}")

    @contextmanager
    def starting(self, *_: object) -> Iterator[tuple[Settings, Registry]]:
        yield self.settings, self.registry


@pytest.fixture
def platform(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    made = Platform(settings, plant(tmp_path / "tables"))
    services = (
        made.service("broker", "log"),
        made.service("connect", "servers"),
        made.service("stream", "workers"),
        made.warm_server(),
        made.service("airflow", "servers", prepares="A database"),
    )
    monkeypatch.setattr(platform_start, "SERVICES", services)
    monkeypatch.setattr("twofold.cli.services.SERVICES", services)
    monkeypatch.setattr(platform_start, "_starting", made.starting)
    monkeypatch.setattr(platform_start, "_ensure_topics", lambda *_: made.did.append("topics"))
    monkeypatch.setattr(platform_start, "write_derived", lambda *_: made.did.append("views"))
    monkeypatch.setattr(supervisor, "start", made.start)
    return made


def without_warm(did: list[str]) -> list[str]:
    """What was done, without what another thread does at some time."""
    return [each for each in did if each != "warm"]


def test_the_last_is_prepared_meanwhile_and_workers_follow_topics(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "is_running", lambda _: False)
    meanwhile = {"connect": "tables", "spark": "send"}

    def before(name: str) -> None:
        assert platform.warms.wait(10), "it is warmed from its start on"
        platform.did.append(meanwhile[name])

    platform_start.start_platform(
        platform.settings,
        before={"connect": lambda *_: before("connect"), "spark": lambda *_: before("spark")},
    )
    assert without_warm(platform.did) == [
        "start broker connect spark",
        "prepare airflow",
        "start broker connect spark airflow",
        "wait broker",
        "topics",
        "start broker connect spark airflow stream",
        "wait broker",
        "tables",
        "wait connect",
        "wait stream",
        "send",
        "wait airflow",
        "views",
    ]
    assert platform.did.count("warm") == 1
    assert platform.did.index("warm") < platform.did.index("tables")
    lines = [line.split(" ")[1] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["A", "broker", "Topics", "connect", "stream", "A", "spark", "airflow"]


def test_a_platform_that_runs_gets_all_programs_at_once(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a start leaves out is stopped."""
    monkeypatch.setattr(supervisor, "is_running", lambda _: True)
    platform_start.start_platform(platform.settings)
    assert [each for each in platform.did if each.startswith("start")] == ["start broker connect spark airflow stream"]
    assert without_warm(platform.did)[:4] == ["prepare airflow", "wait broker", "topics", platform.did[3]]
    assert platform.did.count("warm") == 1


@pytest.mark.parametrize("is_running", [True, False])
def test_what_is_left_out_is_neither_started_nor_waited_for(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    monkeypatch.setattr(supervisor, "is_running", lambda _: is_running)
    platform_start.start_platform(platform.settings, without=["airflow", "spark", "stream"])
    starts = ["start broker connect"] * (1 if is_running else 2)
    assert platform.did == [
        *starts[1:],
        "wait broker",
        "topics",
        "start broker connect",
        "wait broker",
        "wait connect",
        "views",
    ]


def test_new_code_is_loaded_by_what_runs_of_these_domains(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of other domains no stream is restarted; what does not run stays as it is."""
    ran = ["broker", "stream-shop", "stream-flights", "relay-shop", "receiver", "spark"]
    state = ProcessState(name="", state="RUNNING", pid=7, uptime_s=1.0, starts=1, detail="")
    monkeypatch.setattr(supervisor, "state", lambda _: [replace(state, name=name) for name in ran])
    replaced: list[str] = []
    monkeypatch.setattr(supervisor, "replace", lambda _, program: replaced.append(program.name))
    sealed: list[str] = []
    required = staticmethod(lambda _, topics: sealed.extend(t.domain for t in topics))
    monkeypatch.setattr(find_cover(), "require", required)
    platform_start.restart_streams(settings, ["shop"])
    assert replaced == ["stream-shop", "relay-shop"]
    assert set(sealed) == {"shop"}
    assert [line.partition(" [")[0].split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "stream-shop,",
        "relay-shop,",
    ]
    ran.append("outputs")
    platform_start.restart_streams(settings, ["flights"], quietly=True)
    assert replaced[2:] == ["stream-flights", "outputs", "relay-shop"]
    platform_start.restart_streams(settings, [])
    assert len(replaced) == 5
    assert capsys.readouterr().out == ""
