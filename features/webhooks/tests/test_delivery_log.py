"""The size of deliveries on their way to the log, without a broker: what is encrypted is longer than what was sent."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from tests.tables.declared import bound_as
from twofold import from_webhook, person, personal
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records.personal import with_sealed_columns
from twofold.features.webhooks import delivery_log
from twofold.features.webhooks.delivery import Delivery
from twofold.features.webhooks.delivery_log import DeliveryLog
from twofold.features.webhooks.webhook_topic import WebhookTopic
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.delivery_headers import MOST_BYTES


def a_topic(**given: Any) -> WebhookTopic:
    mail = personal("payer", person("shop", of="seller"))
    schema = {"payer": "string", "seller": "string", "mail": mail}
    topic = with_sealed_columns(bound_as(from_webhook(scheme="github", schema=schema, **given), "payments", "bank"))
    assert isinstance(topic, WebhookTopic)
    return topic


class _Producer:
    """Takes what the broker would take, and acknowledges it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.sizes = most_bytes, list[int]()

    def send(self, _: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]]) -> _Producer:
        size = len(value) + len(key) + sum(len(name) + len(content) for name, content in headers) + 100
        assert size <= self.most_bytes, "it would be refused at each try"
        self.sizes.append(len(value))
        return self

    def add_callback(self, call: Any) -> None:
        call(None)

    def add_errback(self, _: Any) -> None: ...


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[_Producer]:
    """Those that were opened."""
    opened: list[_Producer] = []

    @contextmanager
    def producing(_: Settings, *, outage_s: int, most_bytes: int) -> Any:
        opened.append(_Producer(most_bytes))
        yield opened[-1]

    monkeypatch.setattr(delivery_log, "producing", producing)
    return opened


def appended(settings: Settings, topic: WebhookTopic, *bodies: bytes) -> list[str]:
    """Why each body was refused, empty if it is in the log."""
    make_keys(settings)
    log = DeliveryLog(settings, [topic])
    log.start()

    async def answers() -> list[str]:
        given = {"topic": topic.full_name, "event_type": None, "received_at": datetime.now(UTC), "is_dated_here": False}
        sent = [log.append(Delivery(id=f"d{n}", body=body, **given)) for n, body in enumerate(bodies)]
        return [
            f"{error.status_code}: {error.detail}" if isinstance(error, HTTPException) else str(error or "")
            for error in await asyncio.gather(*sent, return_exceptions=True)
        ]

    try:
        return asyncio.run(answers())
    finally:
        log.close(10)


def body_of(size: int) -> bytes:
    start = json.dumps({"payer": "p", "seller": "s", "mail": ""})[:-2].encode()
    return start + b"x" * (size - len(start) - 2) + b'"}'


@pytest.mark.parametrize("segment_bytes", [4 << 20, 16 << 20])
def test_the_longest_body_of_two_persons_fits_into_a_record(
    settings: Settings, producers: list[_Producer], segment_bytes: int
) -> None:
    """Also one that is no JSON, which is encrypted as a whole."""
    topic = a_topic(segment_bytes=segment_bytes)
    assert appended(settings, topic, body_of(MOST_BYTES), body_of(760_000), b"x" * MOST_BYTES) == ["", "", ""]
    [producer] = producers
    assert MOST_BYTES < max(producer.sizes) <= topic.max_bytes, "or ingest would quarantine it"


def test_what_is_too_long_once_encrypted_is_refused_and_delays_no_other(
    settings: Settings, producers: list[_Producer]
) -> None:
    many = json.dumps({"payer": "p", "seller": "s", **{f"n{n}": n for n in range(20_000)}}).encode()
    first, second = appended(settings, a_topic(), many, body_of(100))
    assert first.startswith("413: Encrypted, the body has ")
    assert first.endswith(" bytes; expected at most 2000000.")
    assert (second, len(producers[0].sizes)) == ("", 1)


def test_a_short_segment_bounds_what_is_encrypted(settings: Settings, producers: list[_Producer]) -> None:
    topic = a_topic(segment_bytes=1 << 20)
    first, second = appended(settings, topic, body_of(500_000), body_of(MOST_BYTES))
    assert (first, second[:3], topic.max_bytes) == ("", "413", MOST_BYTES)
