"""Users of a real Airflow: a viewer changes nothing, an anonymous sees nothing of the platform."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from tests.dags.test_page_plugin import PATHS
from tests.servers import wait_until
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.airflow.airflow_processes import base_url, passwords
from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.platform

RUN = {"dag_run_id": "by_role", "logical_date": None, "conf": {"name": "Ada"}}
HITL = "/api/v2/dags/flights.repair/dagRuns/none/taskInstances/approve/-1/hitlDetails"
WRITES: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("POST", "/api/v2/dags/greet/dagRuns", RUN),
    ("PATCH", HITL, {"chosen_options": ["Approve"], "params_input": {"because": "it is right"}}),
    ("PATCH", "/api/v2/dags/greet", {"is_paused": True}),
)
"""A run is started, a plan is approved, a DAG is paused."""


def answered(settings: Settings, path: str, *, token: str = "", method: str = "GET", body: object = None) -> Any:
    """The status of an answer, and its document if it is one."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base_url(settings) + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else None
    except urllib.error.HTTPError as error:
        return error.code, None


def token_of(settings: Settings, user: str, password: str = "") -> str:
    credentials = {"username": user, "password": password or passwords(settings)[user]}
    status, document = answered(settings, "/auth/token", method="POST", body=credentials)
    return str(document["access_token"]) if status == 201 else ""


def test_a_viewer_reads_and_changes_nothing(airflow_alone: Settings) -> None:
    wait_until(lambda: "greet" in Client(airflow_alone).dags())
    vera, uwe = token_of(airflow_alone, "vera"), token_of(airflow_alone, "uwe")
    assert answered(airflow_alone, "/api/v2/dags/greet", token=vera)[0] == 200
    assert answered(airflow_alone, "/twofold/static/page.css", token=vera)[0] == 200
    asked = [(method, path, {"method": method, "body": body}) for method, path, body in WRITES]
    assert [answered(airflow_alone, path, token=vera, **how)[0] for _, path, how in asked] == [403, 403, 403]
    assert answered(airflow_alone, "/api/v2/dags/greet/dagRuns/by_role", token=uwe)[0] == 404, "vera started none"
    statuses = [answered(airflow_alone, path, token=uwe, **how)[0] for _, path, how in asked[:2]]
    assert statuses == [200, 404], "a user may, where there is something to approve"
    assert {answered(airflow_alone, "/twofold/", token=uwe, method=one)[0] for one in ("POST", "PUT")} == {405}


def test_an_anonymous_sees_nothing_of_the_platform(airflow_alone: Settings) -> None:
    paths = [f"/twofold{path}" for path in PATHS] + ["/api/v2/dags", "/api/v2/dags/greet/dagRuns"]
    for method in ("GET", "POST", "DELETE"):
        answers = {path: answered(airflow_alone, path, method=method)[0] for path in paths}
        allowed = {401, 405} if method != "GET" else {401}
        assert {path: status for path, status in answers.items() if status not in allowed} == {}


@pytest.mark.parametrize(("user", "password"), [("vera", "of the test"), ("admin", "wrong"), ("eve", "of the test")])
def test_another_password_is_refused(airflow_alone: Settings, user: str, password: str) -> None:
    assert token_of(airflow_alone, user, password) == ""
