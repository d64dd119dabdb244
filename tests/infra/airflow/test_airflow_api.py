"""A question to Airflow outlives a moment in which it does not answer; a run that is asked for twice starts once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from twofold.infra.airflow import airflow_api
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.errors import BadArgument, ProcessFailed
from twofold.infra.project.settings import Settings


@dataclass
class Silent:
    """A server that keeps its first answers to itself, but does what it was asked."""

    silent: int
    asked: list[str] = field(default_factory=list)
    runs: list[str | None] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def airflow(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Settings, Silent]]:
    state = Silent(silent=0)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            known = body.get("dag_run_id") in state.runs
            if self.path != "/auth/token":
                state.asked.append(self.command)
                state.runs += [body["dag_run_id"]] if "dag_run_id" in body and not known else []
                if len(state.asked) <= state.silent:
                    state.over.wait(20)
                    return
            said = json.dumps({"access_token": "t", "state": "success"}).encode()
            self.send_response(409 if known else 200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    monkeypatch.setattr(airflow_api, "TIMEOUT_S", 0.3)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield replace(settings, airflow_port=server.server_port), state
        finally:
            state.over.set()
            server.shutdown()


def test_a_question_is_asked_again(airflow: tuple[Settings, Silent]) -> None:
    settings, server = airflow
    server.silent = 2
    assert Client(settings).dag_run_state("flights.reconcile", "r") == "success"
    assert server.asked == ["GET"] * 3


def test_not_for_ever(airflow: tuple[Settings, Silent]) -> None:
    settings, server = airflow
    server.silent = 99
    with pytest.raises(ProcessFailed, match="does not answer"):
        Client(settings).dag_run_state("flights.reconcile", "r")
    assert server.asked == ["GET"] * 3


def test_a_run_that_was_started_unheard_starts_once(airflow: tuple[Settings, Silent]) -> None:
    settings, server = airflow
    server.silent = 1
    run = Client(settings).trigger("flights.reconcile")
    assert (server.asked, server.runs) == (["POST"] * 2, [run])


def test_a_refusal_of_the_first_request_is_an_error(airflow: tuple[Settings, Silent]) -> None:
    settings, server = airflow
    server.runs = [None]
    with pytest.raises(BadArgument, match="409"):
        Client(settings).dags()


def test_a_platform_that_is_down_is_not_asked_again(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ProcessFailed, match="does not answer"):
        Client(replace(settings, airflow_port=port)).dags()
