"""Answers of the receiver that need no log: each refusal has its status and its reason, as JSON."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.infra.webhooks.signed import github, secret, standard
from twofold.features.webhooks import webhook_server
from twofold.features.webhooks.tests.test_delivery import topic
from twofold.features.webhooks.webhook_server import _Rate, application
from twofold.infra.project.settings import Settings

BODY = b'{"cents": 5}'
JSON = {"content-type": "application/json"}


@pytest.fixture
def secrets(settings: Settings) -> Path:
    """The file with the secret of the topic."""
    file = settings.webhook_secrets_file
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    file.write_text(f"shop.refunds = {secret()}\n")
    return file


@pytest.fixture
def client(settings: Settings, secrets: Path) -> Iterator[TestClient]:
    """A client of a receiver for `shop.refunds`."""
    with TestClient(application(settings, [topic()])) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/shop", "/shop/refund", "/other/refunds", "/shop/refunds/", "/docs", "/%00/%ff"]
)
def test_an_address_of_no_topic_is_not_found(client: TestClient, path: str) -> None:
    answer = client.post(path, content=BODY, headers=JSON)
    assert answer.status_code == 404
    assert answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_deliveries_are_posted(client: TestClient, method: str) -> None:
    answer = client.request(method, "/shop/refunds")
    assert (answer.status_code, answer.json(), answer.headers["allow"]) == (
        405,
        {"detail": "Method Not Allowed"},
        "POST",
    )


def test_an_unsigned_and_a_wrongly_signed_body_are_refused(client: TestClient) -> None:
    assert client.post("/shop/refunds", content=BODY, headers=JSON).status_code == 401
    answer = client.post("/shop/refunds", content=BODY + b" ", headers={**JSON, **standard(BODY)})
    assert (answer.status_code, answer.json()["detail"]) == (
        401,
        "The signature is refused: no matching signature found.",
    )
    assert client.post("/shop/refunds", content=BODY, headers={**JSON, **github(BODY, key=secret())}).status_code == 401


def test_a_body_that_is_too_long_is_refused_as_one_or_in_chunks(client: TestClient) -> None:
    long = b" " * 1_000_001
    answer = client.post("/shop/refunds", content=long, headers=JSON)
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "The body has 1000001 bytes; expected at most 1000000.",
    )
    chunked = client.post("/shop/refunds", content=iter([long[:500_000]] * 3), headers=JSON)
    assert (chunked.status_code, chunked.json()["detail"]) == (413, "The body has more than 1000000 bytes.")


def test_headers_and_a_body_that_cannot_be_are_refused(client: TestClient) -> None:
    twice = [*JSON.items(), ("webhook-id", "a"), ("Webhook-Id", "b")]
    assert client.post("/shop/refunds", content=BODY, headers=twice).status_code == 400
    assert client.post("/shop/refunds", content=BODY, headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/shop/refunds", content=b"\xff", headers={**JSON, **standard(b"\xff")}).status_code == 400


def test_a_secret_is_read_again_when_its_file_changes(
    client: TestClient, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotation: the new secret is added, later the old one removed."""
    monkeypatch.setattr(webhook_server.DeliveryLog, "append", _appended)
    old, new = standard(BODY), standard(BODY, key=b"n" * 32)

    def statuses() -> list[int]:
        return [client.post("/shop/refunds", content=BODY, headers={**JSON, **each}).status_code for each in (old, new)]

    assert statuses() == [202, 401]
    secrets.write_text(f"shop.refunds = {secret()}\nshop.refunds = {secret(b'n' * 32)}\n")
    assert statuses() == [202, 202]
    secrets.write_text(f"shop.refunds = {secret(b'n' * 32)}\n")
    assert statuses() == [401, 202]


async def _appended(*_: object) -> None:
    """Stands for a log that has the delivery."""


def test_without_a_usable_secret_a_sender_is_asked_to_come_again(client: TestClient, secrets: Path) -> None:
    headers = {**JSON, **standard(BODY)}
    secrets.write_text("shop.other = s\n")
    answer = client.post("/shop/refunds", content=BODY, headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json() == {"detail": "The receiver has no secret of shop.refunds."}
    secrets.write_text(f"shop.refunds = {secret()}\n")
    secrets.chmod(0o644)
    assert client.post("/shop/refunds", content=BODY, headers=headers).status_code == 503
    secrets.unlink()
    assert client.post("/shop/refunds", content=BODY, headers=headers).status_code == 503


def test_more_requests_than_the_rate_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Rate, "allows", lambda _: False)
    answer = client.post("/shop/refunds", content=BODY, headers=JSON)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["detail"] == "More than 2000 requests a second."


def test_the_rate_allows_those_of_a_second_at_once_then_as_time_passes() -> None:
    now = [100.0]
    rate = _Rate(clock=lambda: now[0])
    assert [rate.allows() for _ in range(2_001)].count(True) == 2_000
    now[0] += 0.010625
    assert [rate.allows() for _ in range(40)].count(True) == 21
    now[0] += 3_600
    assert [rate.allows() for _ in range(2_001)].count(True) == 2_000


def test_what_is_refused_reaches_no_log(client: TestClient, settings: Settings) -> None:
    client.post("/shop/refunds", content=BODY, headers=JSON)
    assert "delivery log" in {thread.name for thread in threading.enumerate()}
    assert [path.name for path in settings.home.iterdir()] == ["webhook-secrets"]
