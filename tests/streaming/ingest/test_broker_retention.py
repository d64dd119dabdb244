"""The time left of a stopped stream is computed from the oldest record that waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.streaming.ingest.broker_retention import leaves_in_s, oldest_waiting

NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1_000)
HOUR_MS = 3_600_000


def broker(earliest: int, latest: int) -> PartitionOffsets:
    return PartitionOffsets(earliest=earliest, earliest_local=earliest, latest=latest, tiered=None)


def test_the_oldest_waiting_record_is_the_next_to_be_ingested() -> None:
    on_broker = {"t": {0: broker(0, 50), 1: broker(0, 50), 2: broker(8, 50), 3: broker(9, 9)}, "u": {0: broker(0, 1)}}
    assert oldest_waiting(on_broker, {"t": {0: 20, 1: 50}}) == {"t": {0: 20, 2: 8}, "u": {0: 0}}


@pytest.mark.parametrize(
    ("appended_ms", "seconds"),
    [(NOON_MS, 3_600.0), (NOON_MS - HOUR_MS + 1_500, 1.5), (NOON_MS - 2 * HOUR_MS, 0.0), (None, 0.0)],
)
def test_a_record_leaves_once_local_retention_has_passed(appended_ms: int | None, seconds: float) -> None:
    assert leaves_in_s(appended_ms, HOUR_MS, NOON) == seconds
