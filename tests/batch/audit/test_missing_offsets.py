"""Offsets that compaction has emptied are explained, unless a tombstone may have gone before it was read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.tables.declared import bound_as
from twofold.batch.audit.missing_offsets import unread_tombstones
from twofold.infra.delta.lake import Lake
from twofold.tables.declare.record_fields import key
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import events_schema

TOPIC = bound_as(
    Topic(schema={"item": key(), "at": "timestamp"}, event_time="at", message_key="item", compacted=True), "prices"
)
HOLE = {0: [(3, 9)]}


@pytest.mark.parametrize(
    ("read", "looked", "is_found"),
    [
        (0, 1, False),  # the table was made today: the topic was read in one pass, however old its records are
        (0, 200, True),  # the stream was down for months
        (100, 200, False),  # not as long as a tombstone is kept
    ],
)
def test_a_tombstone_that_a_stopped_stream_may_have_missed_is_a_gap(
    lake: Lake, read: int, looked: int, is_found: bool
) -> None:
    """In days from now: when the record before the hole was appended, and when the hole was passed."""
    today = datetime.now(UTC)
    lake.ensure(TOPIC.full_name, events_schema(TOPIC), statistics=["at"])
    rows = [
        {"_partition": 0, "_offset": 2, "_appended_at": today + timedelta(days=read)},
        {"_partition": 0, "_offset": 9, "_appended_at": today + timedelta(days=looked)},
        {"_partition": 1, "_offset": 2, "_appended_at": today + timedelta(days=looked)},
    ]
    write_deltalake(lake.uri(TOPIC.full_name), pa.Table.from_pylist(rows, events_schema(TOPIC)), mode="append")
    found = unread_tombstones(lake, TOPIC, HOLE, today + timedelta(days=looked))
    assert [(gap.partition, gap.start, gap.end) for gap in found] == [(0, 3, 9)] * is_found
    assert all("may have been removed before it was read" in gap.why for gap in found)
