"""A receiver of webhooks on this machine, by Python's own HTTP server, that answers as a test says."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], str]
OK: Answer = (200, {}, "")


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def change(self) -> dict[str, Any]:
        change: dict[str, Any] = json.loads(self.body)
        return change

    @property
    def brief(self) -> tuple[str, str, int]:
        return self.change["key"]["k"], self.change["change"], self.change["version"]


@dataclass
class Receiver:
    """What has arrived; `answer` gets each request, None of it closes the connection instead."""

    answer: Callable[[Request], Answer | None] = lambda request: OK
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def counted(self) -> dict[str, Request]:
        """Each id once, as first seen."""
        counted: dict[str, Request] = {}
        for request in self.requests:
            counted.setdefault(request.id, request)
        return counted

    def take(self) -> list[tuple[str, str, int]]:
        """What arrived since, briefly."""
        taken, self.requests = self.requests, []
        return [request.brief for request in taken]


@contextmanager
def receiving(receiver: Receiver, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """The receiver at a port of 127.0.0.1 that was free, later again at the same."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = Request({name.lower(): value for name, value in self.headers.items()}, body)
            receiver.requests.append(request)
            answer = receiver.answer(request)
            if answer is None:
                self.close_connection = True
                return
            status, headers, text = answer
            self.send_response(status)
            for name, value in {"content-length": str(len(text.encode())), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", receiver.port), Handler)
    server.handle_error = lambda *_: None  # a client that has gone
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
