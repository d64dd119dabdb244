"""The page in Airflow: who may read it, and that no role can write by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from twofold.features.page.tests.small_platform import saved
from twofold.infra.project.settings import Settings

PATHS = (
    "/", "/map", "/tables", "/tables/plant.hours", "/topics", "/topics/plant.readings", "/proofs", "/plans",
    "/dag/plant.backfill.hours", "/static/page.css", "/static/page.js", "/docs", "/openapi.json", "/nothing",
    "/find?q=hours", "/static/../app.py",
)  # fmt: skip


@pytest.fixture
def airflow(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An API server with the page, and nothing else of Airflow's: no database, in which no session is revoked."""
    from airflow.api_fastapi.app import create_auth_manager, purge_cached_app

    from twofold.features.page.server import airflow_plugin

    monkeypatch.setattr("airflow.models.revoked_token.RevokedToken.is_revoked", lambda *_, **__: False)
    saved(Settings(home=home))
    airflow_plugin._application.cache_clear()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    [plugin] = airflow_plugin.TwofoldPage.fastapi_apps
    app.mount(plugin["url_prefix"], plugin["app"])
    manager = create_auth_manager()
    app.state.auth_manager = manager
    yield app, manager
    airflow_plugin._application.cache_clear()
    purge_cached_app()


def client(airflow: Any, role: str | None) -> TestClient:
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    app, manager = airflow
    client = TestClient(app, follow_redirects=False)
    if role:
        client.cookies.set("_token", manager.generate_jwt(SimpleAuthManagerUser(username=role, role=role)))
    return client


@pytest.mark.parametrize("role", ["VIEWER", "USER", "OP", "ADMIN"])
def test_every_role_reads_and_none_writes(airflow: Any, role: str) -> None:
    browser = client(airflow, role)
    there = [path for path in PATHS if not path.startswith(("/docs", "/openapi", "/nothing", "/static/.."))]
    assert {path: browser.get(f"/twofold{path}").status_code for path in there} == {
        path: 303 if path.startswith(("/dag/", "/find?q=hours")) else 200 for path in there
    }
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert {browser.request(method, f"/twofold{path}").status_code for path in PATHS} == {405}


def test_an_anonymous_reads_nothing(airflow: Any) -> None:
    browser = client(airflow, None)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        answers = {path: browser.request(method, f"/twofold{path}") for path in PATHS}
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(PATHS, 401)
        assert all("Log in again" in answer.text and "plant" not in answer.text for answer in answers.values())


def test_a_forged_session_reads_nothing(airflow: Any) -> None:
    browser = client(airflow, None)
    browser.cookies.set("_token", "x.y.z")
    assert {browser.get(f"/twofold{path}").status_code for path in PATHS} <= {401, 403}
