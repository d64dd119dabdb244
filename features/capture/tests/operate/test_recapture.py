"""A capture goes on where Connect knows it, and is not begun from the start over changes that are there."""

from __future__ import annotations

import pytest

from twofold.features.capture import debezium_connector
from twofold.features.capture.captured_table import Capture
from twofold.features.capture.operate import recapture
from twofold.features.capture.tests.test_snapshot_deletions import AGAIN, declared, event, write
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import CaptureFailed


def test_a_capture_that_connect_forgot_is_not_begun_from_the_start(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Capture] = []
    monkeypatch.setattr(debezium_connector, "known", lambda *_: known)
    first = Capture(topic=AGAIN.topic, table=AGAIN.table)
    assert recapture.current(lake.settings, lake, first) == first
    write(lake, declared({"id": "long"}), [event(1, "snapshot", 1, 10, 0)])
    with pytest.raises(CaptureFailed, match="Kafka Connect knows no capture of it"):
        recapture.current(lake.settings, lake, first)
    known.append(AGAIN)
    assert recapture.current(lake.settings, lake, first) == AGAIN
