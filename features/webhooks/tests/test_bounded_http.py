"""One connection of the receiver without a network: what is longer than it may be reaches no application."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from twofold.features.webhooks.bounded_http import HEAD_BYTES, BoundedProtocol

START = b"POST /hub/pushes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent, self.is_closed = b"", False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def answer_to(*parts: bytes) -> tuple[bytes, int]:
    """The status line that parts get, and how many requests reached the application."""
    reached: list[Any] = []

    async def application(scope: Any, _: Any, send: Any) -> None:
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def connected() -> bytes:
        configuration = Config(application, http=BoundedProtocol, log_level="critical")
        configuration.load()
        protocol, transport = BoundedProtocol(configuration, ServerState(), {}), _Transport()
        protocol.connection_made(transport)
        for part in parts:
            protocol.data_received(part)
            await asyncio.sleep(0.01)
        return transport.sent

    return asyncio.run(connected()).partition(b"\r\n")[0], len(reached)


@pytest.mark.parametrize(
    "head",
    [
        START + b"X-More: " + b"y" * 65_000 + b"\r\n",
        START + b"X: y\r\n" * (HEAD_BYTES // 6),
        START.replace(b"/hub", b"/" + b"h" * HEAD_BYTES),
    ],
)
@pytest.mark.parametrize("size", [1 << 20, 8_000])
def test_headers_that_are_too_long_are_refused_however_they_arrive(head: bytes, size: int) -> None:
    """In one piece with the body they were taken."""
    request = head + b"\r\n{}"
    parts = [request[at : at + size] for at in range(0, len(request), size)]
    assert answer_to(*parts) == (b"HTTP/1.1 431 Request Header Fields Too Large", 0)


def test_headers_that_are_just_short_enough_are_taken_with_a_long_body() -> None:
    more = b"X-More: " + b"y" * (HEAD_BYTES - 200) + b"\r\n"
    body = b"z" * 100_000
    request = START.replace(b"2\r\n", b"%d\r\n" % len(body)) + more + b"\r\n" + body
    assert answer_to(request) == (b"HTTP/1.1 202 Accepted", 1)
    assert answer_to(request[:20_000], request[20_000:]) == (b"HTTP/1.1 202 Accepted", 1)
