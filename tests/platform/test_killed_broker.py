"""A broker that is killed under load loses and repeats nothing, and its driver goes on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.platform.acknowledged_records import faults
from tests.platform.supervised_driver import MESSY, kill, live_driver, process, sending, works_since
from tests.servers import wait_until
from twofold.infra.kafka import broker as kafka
from twofold.infra.project.settings import Settings

pytestmark = [pytest.mark.platform, pytest.mark.prove]

PROMPT = replace(MESSY, minutes_share=0.0, hours_share=0.0)


def test_a_broker_killed_under_load_loses_and_repeats_nothing(broker: Settings, log: Settings) -> None:
    """A driver starts, and then the broker again, while records are sent; one table is enough beside ingest."""
    with live_driver(broker, log, "airport_weather") as driver:
        began = datetime.now(UTC)
        with sending(log, days=14, seconds=600, imperfections=PROMPT) as sent:
            wait_until(lambda: works_since(log, began, tables=False))
            before, starts = driver().pid, process(broker, "broker").starts
            assert not sent.done(), "no load was left"
            kill(process(broker, "broker"))
            wait_until(lambda: process(broker, "broker").starts == starts + 1)
            kafka.wait_ready(broker)
            back = datetime.now(UTC)
            wait_until(lambda: works_since(log, back, tables=False))
            assert not sent.done(), "no load was left"
        wait_until(lambda: faults(log) == {})
        assert driver().pid == before
