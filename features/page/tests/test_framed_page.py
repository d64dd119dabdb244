"""The page is looked at through a proxy: may Airflow show it in a frame."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from twofold.features.page.framed_page import forbids_frames, require_frame
from twofold.features.page.server.app import POLICY
from twofold.infra.errors import ProcessFailed
from twofold.infra.process.ports import HOST, free_port
from twofold.infra.project.settings import Settings

AT = "https://data.example.org/airflow"
CSP, XFO = "Content-Security-Policy", "x-frame-options"
NONE = "frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("headers", "wrong"),
    [
        ([], ""),
        ([(CSP, POLICY)], ""),
        ([(XFO, "SAMEORIGIN")], ""),
        ([(XFO, "sameorigin, SAMEORIGIN")], ""),
        ([(XFO, "ALLOW-FROM https://elsewhere.example")], ""),
        ([(XFO, "Deny")], "X-Frame-Options: Deny"),
        ([(XFO, "DENY"), (XFO, "SAMEORIGIN")], "X-Frame-Options: DENY, SAMEORIGIN"),
        ([(XFO, "DENY"), (CSP, POLICY)], ""),
        ([(XFO, "DENY"), (CSP, "default-src 'self'")], "X-Frame-Options: DENY"),
        ([(CSP, POLICY), (CSP, NONE)], f"{CSP}: {NONE}"),
        ([(CSP, f"{POLICY}, default-src 'self'; {NONE}")], f"{CSP}: {NONE}"),
        ([(CSP, "frame-ancestors")], f"{CSP}: frame-ancestors"),
        ([(CSP, "frame-ancestors x.example http:")], f"{CSP}: frame-ancestors x.example http:"),
        ([(CSP, "frame-ancestors https://elsewhere.example data.example.org")], ""),
        ([(CSP, "FRAME-ANCESTORS https://*.example.org/")], ""),
        ([(CSP, "frame-ancestors https:")], ""),
        ([(CSP, "frame-ancestors *")], ""),
    ],
)  # fmt: skip
def test_a_header_that_forbids_the_frame_is_named(headers: list[tuple[str, str]], wrong: str) -> None:
    assert forbids_frames(AT, headers) == wrong


@pytest.fixture
def proxy() -> Iterator[Any]:
    """A server that refuses who has not logged in, with these headers."""
    headers: dict[str, str] = {}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401 if self.path == "/air/twofold/" else 404)
            for name, value in headers.items() if self.path == "/air/twofold/" else ():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer((HOST, 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield headers, f"http://{HOST}:{server.server_port}/air/"
    server.shutdown()
    server.server_close()


def test_a_proxy_that_forbids_frames_is_refused(settings: Settings, proxy: Any) -> None:
    headers, address = proxy
    behind = replace(settings, airflow_url=address)
    require_frame(settings, None)  # there is no proxy
    require_frame(behind, None)
    headers["X-Frame-Options"] = "DENY"
    with pytest.raises(ProcessFailed, match=rf"^X-Frame-Options: DENY\n.* open {address}twofold/ itself"):
        require_frame(behind, None)


def test_a_proxy_that_does_not_answer_is_named(settings: Settings) -> None:
    with pytest.raises(ProcessFailed, match="does not answer"):
        require_frame(replace(settings, airflow_url=f"http://{HOST}:{free_port()}"), None)
