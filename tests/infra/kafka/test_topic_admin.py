"""Topics on a broker that is not there."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import InvalidReplicationFactorError, UnknownBrokerIdError

from tests.infra.conftest import free_port
from twofold.infra.errors import BrokerUnreachable
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.project.settings import Settings


@pytest.fixture
def nobody() -> Settings:
    """Settings whose broker does not run."""
    return Settings(kafka_port=free_port())


@pytest.mark.parametrize(
    "ask",
    [
        lambda settings: topic_admin.offsets(settings, ["t"]),
        lambda settings: topic_admin.topic_ids(settings, ["t"]),
        lambda settings: topic_admin.appended_ms(settings, {"t": {0: 5}}),
    ],
    ids=["offsets", "topic_ids", "appended_ms"],
)
def test_a_broker_that_does_not_answer_is_reported_within_seconds(
    nobody: Settings, ask: Callable[[Settings], object]
) -> None:
    began = time.monotonic()

    with pytest.raises(BrokerUnreachable) as unreachable:
        ask(nobody)

    assert time.monotonic() - began < 10
    assert f"127.0.0.1:{nobody.kafka_port}" in str(unreachable.value)
    assert "TWOFOLD_KAFKA_PORT" in str(unreachable.value)
    assert "./twofold up" in str(unreachable.value.hint)
    assert unreachable.value.retryable


def test_a_broker_that_leads_nothing_counts_as_away(nobody: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine delays heartbeats; the controller then gives each partition the leader -1."""
    monkeypatch.setattr("kafka.admin.KafkaAdminClient", lambda **_: SimpleNamespace(close=lambda: None))
    with pytest.raises(BrokerUnreachable), topic_admin.reach(nobody):
        raise UnknownBrokerIdError(-1)


def test_a_topic_is_made_once_the_broker_is_admitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine delays heartbeats; the controller then gives the broker no partition for a moment."""
    asked: list[str] = []

    def create_topics(topics: dict[str, object], **_: object) -> None:
        asked.extend(topics)
        if len(asked) < 3:
            raise InvalidReplicationFactorError("All brokers are currently fenced")

    client = cast(Any, SimpleNamespace(create_topics=create_topics))
    assert topic_admin._create(client, [TopicSpec(name="t", partitions=1)]) == ["t: created with 1 partitions"]
    assert asked == ["t"] * 3
    monkeypatch.setattr(topic_admin, "FENCED_S", 0.0)
    asked.clear()
    with pytest.raises(BrokerUnreachable, match="takes no partition of t"):
        topic_admin._create(client, [TopicSpec(name="t", partitions=1)])


def test_what_is_not_worth_a_failure_is_none_without_a_broker(nobody: Settings) -> None:
    kept = topic_admin.KeptAdmin(nobody)
    assert not kept.commit("twofold.test", {"t": {0: 1}})
    assert kept.topic_ids(["t"]) == {}


def test_a_cluster_that_does_not_answer_is_reported_by_its_setting() -> None:
    settings = Settings(bootstrap=f"127.0.0.1:{free_port()}")

    with pytest.raises(BrokerUnreachable, match="TWOFOLD_BOOTSTRAP"):
        topic_admin.ensure_topics(settings, [TopicSpec(name="t", partitions=1)])
