"""Deliveries: what is refused before and after the body is read, what identifies one, and what its record has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from tests.infra.webhooks.signed import github, secret, standard
from tests.tables.declared import bound_as
from twofold.features.webhooks.delivery import Delivery, accept, require_acceptable
from twofold.features.webhooks.webhook_topic import WebhookTopic, from_webhook

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
BODY = b'{"cents": 5}'
JSON = (b"Content-Type", b"application/json")


def topic(scheme: str = "standard", **changes: Any) -> WebhookTopic:
    declared = bound_as(from_webhook(scheme=scheme, schema={"cents": "int"}, **changes), "refunds", "shop")  # type: ignore[arg-type]
    assert isinstance(declared, WebhookTopic)
    return declared


def refusal(*headers: tuple[bytes, bytes]) -> tuple[int, str]:
    with pytest.raises(HTTPException) as refused:
        require_acceptable(headers)
    return refused.value.status_code, refused.value.detail


@pytest.mark.parametrize("kind", [b"application/json", b"application/json; charset=UTF-8", b"application/ce+json"])
def test_json_of_any_kind_is_acceptable(kind: bytes) -> None:
    headers = require_acceptable([(b"CONTENT-type", kind), (b"Content-Length", b"1000000"), (b"X-Odd", b"\xff")])
    assert headers["content-type"] == kind.decode()


@pytest.mark.parametrize(
    "kind",
    [b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=utf-16", b";", b"\xff"],
)
def test_another_content_type_is_refused(kind: bytes) -> None:
    status, reason = refusal((b"Content-Type", kind))
    assert status == 415
    assert "expected application/json in UTF-8" in reason
    assert refusal()[0] == 415


def test_a_compressed_body_is_refused() -> None:
    assert refusal(JSON, (b"Content-Encoding", b"gzip"))[0] == 415
    require_acceptable([JSON, (b"Content-Encoding", b"identity")])


def test_a_long_body_is_refused_before_it_is_read() -> None:
    assert refusal(JSON, (b"Content-Length", b"1000001")) == (
        413,
        "The body has 1000001 bytes; expected at most 1000000.",
    )


@pytest.mark.parametrize(
    "name", [b"webhook-id", b"Webhook-Signature", b"X-Hub-Signature-256", b"Idempotency-Key", b"Content-Type"]
)
def test_a_header_that_is_there_twice_is_refused(name: bytes) -> None:
    status, reason = refusal(JSON, (name, b"a"), (name.upper(), b"a"))
    assert status == 400
    assert f"The header {name.decode().lower()} is there " in reason


def refused(topic: WebhookTopic, headers: dict[str, str], body: bytes = BODY, key: str = "") -> tuple[int, str]:
    with pytest.raises(HTTPException) as found:
        accept(topic, [key or secret()], headers, body, NOON)
    return found.value.status_code, found.value.detail


def test_a_delivery_has_what_was_signed() -> None:
    delivery = accept(topic(), ["whsec_b2xk", secret()], standard(BODY, id="msg_1"), BODY, NOON)
    assert delivery == Delivery(
        topic="shop.refunds", id="msg_1", body=BODY, event_type=None, received_at=NOON, is_dated_here=True
    )


def test_an_id_of_standard_webhooks_is_the_signed_one_alone() -> None:
    """An `Idempotency-Key` is not signed: a copy of a delivery could have another one, and count again."""
    headers = {**standard(BODY, id="msg_1"), "idempotency-key": "other", "x-github-event": "push"}
    delivery = accept(topic(), [secret()], headers, BODY, NOON)
    assert (delivery.id, delivery.event_type) == ("msg_1", None)


@pytest.mark.parametrize(
    ("changes", "id"),
    [({}, "d1"), ({"idempotency-key": "k1"}, "d1"), ({"x-github-delivery": None, "idempotency-key": "k1"}, "k1")],
)
def test_an_id_of_github_is_its_delivery_or_an_idempotency_key(changes: dict[str, str | None], id: str) -> None:
    headers = {name: value for name, value in {**github(BODY, key="s"), **changes}.items() if value is not None}
    delivery = accept(topic("github"), ["s"], {**headers, "x-github-event": "push"}, BODY, NOON)
    assert (delivery.id, delivery.event_type) == (id, "push")


def test_a_wrong_signature_is_refused_with_its_reason() -> None:
    assert refused(topic(), standard(b"{}")) == (401, "The signature is refused: no matching signature found.")
    assert refused(topic("github"), {}, key="s")[0] == 401
    assert refused(topic(), {}) == (401, "The signature is refused: the header webhook-id is missing.")


@pytest.mark.parametrize("id", ["", "a b", "a\x00", "é", "\n", "i" * 201])
def test_an_id_that_is_no_word_is_refused(id: str) -> None:
    headers = {**github(BODY, key="s"), "x-github-delivery": id}
    status, reason = refused(topic("github"), headers, key="s")
    assert status == 400
    assert "x-github-delivery" in reason
    del headers["x-github-delivery"]
    assert refused(topic("github"), headers, key="s")[1].startswith("There is no id")


def test_a_body_that_is_no_text_or_nothing_is_refused() -> None:
    assert refused(topic(), standard(b"\xff"), b'{"a": "\xff"}') == (
        400,
        "Byte 7 of the body is not UTF-8, in which JSON is written.",
    )
    assert refused(topic(), standard(b""), b"")[0] == 400


@pytest.mark.parametrize("body", [b"no JSON", b"\x00", b'{"cents": "\\u0000"}', b"[" * 100_000, "é".encode()])
def test_whether_a_body_fits_the_schema_is_left_to_ingest(body: bytes) -> None:
    assert accept(topic(), [secret()], standard(body), body, NOON).body == body


def test_the_headers_of_a_record_are_its_id_and_time() -> None:
    delivery = accept(topic("github"), ["s"], {**github(BODY, key="s"), "x-github-event": "push"}, BODY, NOON)
    first = datetime(2026, 11, 27, 12, 59, 58, 5, tzinfo=timezone(timedelta(hours=1)))
    assert delivery.record_headers(first) == [
        ("webhook-id", b"d1"),
        ("x-github-event", b"push"),
        ("webhook-received-at", b"2026-11-27T11:59:58.000005+00:00"),
    ]
    assert delivery.record_headers(None) == [("webhook-id", b"d1"), ("x-github-event", b"push")]
