"""The page without Airflow: on this machine, by its own name, with the passwords of Airflow's users."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from twofold.features.page.platform_status import StatusCache
from twofold.features.page.server.app import application
from twofold.features.page.server.standalone import address, signed_in
from twofold.features.page.tests.server.test_app import PAGES
from twofold.features.page.tests.small_platform import saved
from twofold.infra.airflow.airflow_processes import passwords
from twofold.infra.project.settings import Settings

EVERY = (*PAGES, "/static/page.css", "/static/page.js", "/docs", "/openapi.json", "/nothing")


@pytest.fixture
def browser(settings: Settings) -> TestClient:
    settings = replace(settings, airflow_password="sesame", airflow_users="vera:viewer", page_port=18099)
    saved(settings)
    app = application(settings, signed_in(settings), cache=StatusCache(settings, advance=False))
    assert address(settings) == "http://127.0.0.1:18099/"
    return TestClient(app, base_url="http://127.0.0.1:18099", follow_redirects=False)


def test_who_knows_the_password_reads(browser: TestClient, settings: Settings) -> None:
    vera = passwords(replace(settings, airflow_users="vera:viewer"))["vera"]
    assert {browser.get(path, auth=("vera", vera)).status_code for path in PAGES} <= {200, 303}
    assert {browser.get(path, auth=("admin", "sesame")).status_code for path in PAGES} <= {200, 303}
    browser.base_url = "http://localhost:18099"
    assert browser.get("/", auth=("admin", "sesame")).status_code == 200


@pytest.mark.parametrize(
    "given",
    [None, ("admin", ""), ("admin", "sesam"), ("", "sesame"), ("root", "sesame"), ("vera", "sesame"), ("admin", "ü")],
)
def test_others_are_asked_who_they_are_everywhere(browser: TestClient, given: tuple[str, str] | None) -> None:
    for method in ("GET", "POST", "DELETE"):
        answers = [browser.request(method, path, auth=given) for path in EVERY]
        assert {answer.status_code for answer in answers} == {401}
        assert {answer.headers["www-authenticate"] for answer in answers} == {'Basic realm="Twofold"'}
        assert not [answer for answer in answers if "plant" in answer.text]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:18099", "127.0.0.1", "localhost:1", ""])
def test_another_name_of_this_machine_is_refused(browser: TestClient, host: str) -> None:
    answers = [browser.get(path, auth=("admin", "sesame"), headers={"host": host}) for path in EVERY]
    assert {answer.status_code for answer in answers} == {421}
    assert not [answer for answer in answers if "plant" in answer.text]


def test_nothing_but_reading_is_answered(browser: TestClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert {browser.request(method, path, auth=("admin", "sesame")).status_code for path in EVERY} == {405}
