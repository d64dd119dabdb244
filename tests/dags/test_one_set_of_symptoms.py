"""What is wrong is one set: `status`, the page, the doctor and the watch of a stream show the same symptoms."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.status.troubled_platform import DOWN, TROUBLED
from twofold.cli.__main__ import main
from twofold.features.page.platform_status import StatusCache
from twofold.features.page.server.app import application
from twofold.features.page.tests.small_platform import saved
from twofold.infra.project.settings import Settings
from twofold.infra.text.printable import plain
from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.diagnosis import symptoms_of


@pytest.fixture(params=[TROUBLED, DOWN], ids=["runs", "is down"])
def now(request: pytest.FixtureRequest, home: object, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """What every look at the platform finds."""
    monkeypatch.setattr("twofold.status.observer.Observer.snapshot", lambda *_, **__: request.param)
    monkeypatch.setattr("twofold.infra.process.doctor.examine", lambda *_: [])
    now: Snapshot = request.param
    return now


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def test_commands_and_the_page_show_the_same_symptoms(now: Snapshot, printed: Callable[..., tuple[int, str]]) -> None:
    symptoms = symptoms_of(now)
    assert json.loads(printed("status", "--json")[1])["symptoms"] == plain(symptoms)
    code, document = printed("doctor", "--json")
    assert (code, json.loads(document)) == (now is TROUBLED, {"findings": [], "symptoms": plain(symptoms)})
    for command, ending in (("status", "command"), ("doctor", "hint")):
        lines = printed(command)[1].replace("\n  ", " ").splitlines()
        told = [line[2:] for line in lines if line[:2] in ("✗ ", "! ", "? ")]
        assert told == [f"{symptom.text} {getattr(symptom, ending)}" for symptom in symptoms]
    settings = Settings.from_environment()
    saved(settings, now)
    app = application(settings, lambda: None, cache=StatusCache(settings, advance=False))
    home = TestClient(app).get("/").text
    needs = home.split('<div class="need">')[1:]
    assert [symptom.command in need for symptom, need in zip(symptoms, needs, strict=True)] == [True] * len(symptoms)


def test_the_watch_fails_for_those_that_stop_its_stream(now: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import DAG, AssetAlias
    from airflow.sdk.exceptions import AirflowFailException

    from twofold.dags.operators.stream_watchdog import StreamOperator

    symptoms, restarted = symptoms_of(now), list[str]()
    document = {**plain(now), "symptoms": plain(symptoms)}
    monkeypatch.setattr(StreamOperator, "run", lambda *_: document)
    monkeypatch.setattr("twofold.infra.process.supervisor.restart", lambda _, name: restarted.append(name))
    monkeypatch.setattr("twofold.dags.operators.stream_watchdog.RESTART_WAIT_S", 0)
    with DAG("plant.stream", schedule=None):
        task = StreamOperator(task_id="watch", domain="plant", changes=AssetAlias("plant.changed"))
    context = {"ti": SimpleNamespace(xcom_pull=lambda **_: None)}
    execute: Any = type(task).execute.__wrapped__  # type: ignore[attr-defined]
    with pytest.raises(AirflowFailException) as failed:
        execute(task, context)
    watched = [symptom for symptom in symptoms if symptom.watched]
    assert {symptom.text: symptom.text.rstrip(".") in str(failed.value) for symptom in symptoms} == {
        symptom.text: symptom.watched for symptom in symptoms
    }
    assert restarted == [symptom.restarts for symptom in watched if symptom.restarts]
    document["symptoms"] = plain([symptom for symptom in symptoms if not symptom.watched])
    assert execute(task, context)["symptoms"] == [symptom.text for symptom in symptoms if not symptom.watched]
