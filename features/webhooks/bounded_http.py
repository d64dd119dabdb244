"""HTTP/1.1 with bounds on what clients may hold: connections, time, bytes of headers."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

CONNECTIONS = 200
"""Open connections; each holds one body at most."""
REQUEST_S = 10.0
"""How long a client may take to send a request, from its first byte, or from the connection, to its last one."""
HEAD_BYTES = 32_768
"""The longest first line with headers."""
REQUEST_BYTES = 8 << 20
"""The longest request, with the sizes of its chunks and what follows them, and what is sent after a refusal."""
RETRY_AFTER_S = 5
"""When a sender may come again."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection; what breaks a bound gets a JSON answer, and the connection is closed."""

    _deadline: asyncio.TimerHandle | None = None
    _is_in_head = True
    _received = 0
    """Bytes of the request that is being sent."""
    _head = 0
    """Of these, those of its path and its headers, which may arrive with the body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self._refuse(503, f"More than {CONNECTIONS} connections are open.")
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_request()
        self._received += len(data)
        super().data_received(data)
        if self._is_in_head and self._received > HEAD_BYTES:
            self._refuse_head()
        elif self._received > REQUEST_BYTES:
            self._refuse(413, f"The request has more than {REQUEST_BYTES} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head = True, 0
        self._expect_request()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._head += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head += len(name) + len(b": ") + len(value) + len(b"\r\n")

    def on_headers_complete(self) -> None:
        if self._head > HEAD_BYTES:
            self._refuse_head()
            raise ValueError  # nothing after them is parsed
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._cancel_deadline()
        self._is_in_head, self._received = True, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is no HTTP."""
        self._refuse(400, msg)

    def _expect_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(REQUEST_S, self._give_up)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._refuse(408, f"The request is not complete after {REQUEST_S:.0f} s.")

    def _refuse_head(self) -> None:
        self._refuse(431, f"The headers have more than {HEAD_BYTES} bytes.")

    def _refuse(self, status: int, reason: str) -> None:
        """Answers in place of the application, unless it has answered this request, and closes the connection."""
        if self.transport.is_closing():
            return
        is_answered = not self._is_in_head and self.cycle is not None and self.cycle.response_started
        if not is_answered:
            self.transport.write(_answer(status, reason))
        self.transport.close()


def _answer(status: int, reason: str) -> bytes:
    body = json.dumps({"detail": reason}).encode()
    head = [b"content-type: application/json", b"connection: close", b"content-length: %d" % len(body)]
    if status == 503:
        head.append(b"retry-after: %d" % RETRY_AFTER_S)
    return STATUS_LINE[status] + b"\r\n".join([*head, b"", body])
