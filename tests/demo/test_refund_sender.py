"""The shop's webhooks, sent to the receiver that `up` would start: what is in the log, and how tables will see it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.infra.conftest import free_port
from twofold.demo.traffic import refund_sender
from twofold.features.webhooks import receiver
from twofold.infra.errors import BadSetting, ProcessFailed
from twofold.infra.kafka import topic_admin
from twofold.infra.process import supervisor
from twofold.infra.project.chosen_domains import choose_domains
from twofold.infra.project.settings import Settings
from twofold.infra.webhooks.webhook_secrets import add_missing
from twofold.tables.declare.registry import running
from twofold.tables.refresh.events.topic_specs import specs

DAY = date(2026, 3, 2)


def test_notices_of_a_day_are_the_same_in_every_run() -> None:
    first = [*refund_sender.notices(DAY)]
    assert first == [*refund_sender.notices(DAY)]
    assert len({notice["refund_id"] for notice in first}) == 20
    assert {notice["refunded_at"][:10] for notice in first} <= {"2026-03-03", "2026-03-04"}


def test_without_a_secret_or_a_receiver_the_error_says_what_to_do(settings: Settings) -> None:
    away = replace(settings, webhook_port=free_port())
    with pytest.raises(BadSetting, match="cannot be read"):
        refund_sender.send(away, DAY)
    add_missing(away, [])
    with pytest.raises(BadSetting, match="has no secret of shop"):
        refund_sender.send(away, DAY)
    add_missing(away, [refund_sender.TOPIC])
    with pytest.raises(ProcessFailed, match="does not answer"):
        refund_sender.send(away, DAY)


@pytest.mark.platform
def test_the_shop_takes_its_notices_and_no_forgery(broker: Settings, tmp_path: Path) -> None:
    from kafka import KafkaConsumer

    settings = Settings(home=tmp_path / "home", bootstrap=broker.bootstrap_servers, webhook_port=free_port())
    choose_domains(settings, ["shop"])
    registry = running(settings)
    topic_admin.ensure_topics(broker, [spec for spec in specs(registry) if spec.name == refund_sender.TOPIC])
    add_missing(settings, [refund_sender.TOPIC])
    try:
        supervisor.start(settings, [*receiver.SERVICE.programs(settings, registry)])
        [wait] = receiver.SERVICE.ready(settings, registry)
        wait.run()
        assert refund_sender.send(settings, DAY) == 20
    finally:
        supervisor.stop(settings)
    consumer = KafkaConsumer(
        refund_sender.TOPIC,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    )
    found = Counter(record.value for record in consumer)
    consumer.close()
    first, *others = [json.dumps(notice).encode() for notice in refund_sender.notices(DAY)]
    assert found == {first: 2, **dict.fromkeys(others, 1)}
