"""A registry is asked once for a schema, and one that does not answer is no unknown schema."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from twofold.infra.errors import RegistryUnreachable
from twofold.infra.kafka.schema_registry import SchemaRegistry

GUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
IMPORT = {"name": "common.proto", "subject": "common/value", "version": 2}
ANSWERS: dict[str, Any] = {
    "/apis/ccompat/v7/schemas/ids/7": {"schema": '"string"'},
    f"/apis/ccompat/v7/schemas/guids/{GUID}": {
        "schema": "message A {}",
        "schemaType": "PROTOBUF",
        "references": [IMPORT],
    },
    "/apis/ccompat/v7/subjects/common%2Fvalue/versions/2": {"subject": "common/value", "schema": "message B {}"},
}


class Registry(BaseHTTPRequestHandler):
    """Answers like a registry; `asked` holds the paths and the credentials, `status` what is answered instead."""

    asked: list[tuple[str, str | None]]
    status = 0

    def do_GET(self) -> None:
        type(self).asked.append((self.path, self.headers["Authorization"]))
        answer = ANSWERS.get(self.path)
        self.send_response(type(self).status or (404 if answer is None else 200))
        self.end_headers()
        self.wfile.write(json.dumps(answer or {"error_code": 40403}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[type[Registry], str]]:
    """The registry and where it is."""
    own = type("Own", (Registry,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), own)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield own, f"127.0.0.1:{server.server_port}/apis/ccompat/v7"
    server.shutdown()
    server.server_close()


def test_a_schema_is_asked_for_once(registry: tuple[type[Registry], str]) -> None:
    own, place = registry
    client = SchemaRegistry(f"http://me:s%40cret@{place}/")
    assert [client.find(7), client.find(7)] == [('"string"', ())] * 2
    assert own.asked == [("/apis/ccompat/v7/schemas/ids/7", "Basic bWU6c0BjcmV0")]


def test_what_a_schema_imports_comes_with_it(registry: tuple[type[Registry], str]) -> None:
    assert SchemaRegistry(f"http://{registry[1]}").find(GUID) == (
        "message A {}",
        (("common.proto", "message B {}"),),
    )


def test_an_unknown_schema_is_asked_for_again_only_after_a_while(registry: tuple[type[Registry], str]) -> None:
    own, place = registry
    client = SchemaRegistry(f"http://{place}")
    assert [client.find(8), client.find(8)] == [None, None]
    assert len(own.asked) == 1


def test_a_registry_that_does_not_answer_is_reported_and_can_be_retried(registry: tuple[type[Registry], str]) -> None:
    own, place = registry
    client = SchemaRegistry(f"http://me:secret@{place}")
    own.status = 503
    with pytest.raises(RegistryUnreachable, match="answers 503") as raised:
        client.find(7)
    assert raised.value.retryable
    assert "secret" not in str(raised.value)
    own.status = 0
    assert client.find(7) == ('"string"', ())
    with pytest.raises(RegistryUnreachable, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:9").find(7)
