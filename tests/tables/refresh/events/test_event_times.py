"""Event times follow trusted clocks, and no record claims the future."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.tables.declared import bound_as
from tests.tables.typed_records import GOOD, TOPIC, raw
from twofold.infra.errors import BadDeclaration
from twofold.quality.rules import between
from twofold.tables.declare.metadata_columns import APPENDED_AT, LATE_BY_MS, OFFSET
from twofold.tables.declare.topic import DeviceClock, Topic
from twofold.tables.refresh.events.record_decoder import Decoded, Decoder

METERED = bound_as(
    Topic(
        schema={"id": "string", "measured_at": "timestamp", "sent_at": "timestamp", "received_at": "timestamp"},
        event_time="at",
        clock=DeviceClock(event="measured_at", sent="sent_at", received="received_at", bound="1 hour"),
        message_key="id",
        dedup_keys=["id"],
        checks=[between("at", "2012-01-01T00:00:00Z", None)],
    ),
    "meters",
)


def metered(measured: str, sent: str, received: str, topic: Topic = METERED) -> Decoded:
    """A record with these times of 2013-01-01."""
    times = {"measured_at": measured, "sent_at": sent, "received_at": received}
    record = {"id": "a"} | {c: f"2013-01-01T{t}Z" for c, t in times.items() if c in topic.schema}
    return Decoder(topic).decode(raw([json.dumps(record).encode()]), None)


@pytest.mark.parametrize(
    ("measured", "sent", "received", "at"),
    [
        ("10:00:00", "10:00:05", "10:00:05", "10:00:00"),
        ("10:00:00", "10:00:05", "10:00:06", "10:00:01"),
        ("10:20:00", "10:20:05", "10:00:05", "10:00:00"),  # 20 minutes fast
        ("09:40:00", "09:40:05", "10:00:05", "10:00:00"),  # 20 minutes slow
        ("10:00:00", "12:00:00", "12:00:00", "10:00:00"),  # kept for two hours by a device whose clock is right
        ("10:00:00", "10:00:00", "11:00:00", "11:00:00"),
        ("10:00:00", "10:00:00", "11:00:01", "11:00:00"),  # no more than the bound
        ("10:00:00", "10:00:00", "08:00:00", "09:00:00"),
        ("10:00:00.000001", "10:00:00.000002", "10:00:00.000004", "10:00:00.000003"),
    ],
)
def test_a_time_of_a_device_is_moved_by_what_its_clock_was_off(
    measured: str, sent: str, received: str, at: str
) -> None:
    event = metered(measured, sent, received).accepted.to_pylist()[0]
    told = {column: datetime.fromisoformat(f"2013-01-01T{t}+00:00") for column, t in {
        "at": at, "measured_at": measured, "sent_at": sent, "received_at": received
    }.items()}  # fmt: skip
    assert {column: event[column] for column in told} == told


def test_without_a_receiver_the_append_to_the_log_is_the_reception() -> None:
    clock = DeviceClock(event="measured_at", sent="sent_at", bound="2 days")
    schema = {column: kind for column, kind in METERED.schema.items() if column != "received_at"}
    topic = bound_as(replace(METERED, schema=schema, clock=clock), "meters")
    # Appended at midnight after 2013-01-01, one minute after it was sent by a clock that is 13 hours slow.
    event = metered("10:00:00", "10:59:00", "", topic).accepted.to_pylist()[0]
    assert event["at"] == datetime(2013, 1, 1, 23, 1, tzinfo=UTC)


def test_a_topic_can_show_when_the_broker_appended_each_record() -> None:
    topic = bound_as(replace(METERED, append_time="arrived_at"), "meters")
    event = metered("10:00:00", "10:00:05", "10:00:05", topic).accepted.to_pylist()[0]
    assert event["arrived_at"] == event[APPENDED_AT] == datetime(2013, 1, 2, tzinfo=UTC)
    assert event["at"] == datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert "arrived_at" not in topic.same_record


@pytest.mark.parametrize("taken", ["sent_at", "at", "_offset"])
def test_the_name_of_the_append_time_must_be_free(taken: str) -> None:
    with pytest.raises(BadDeclaration, match=r"expected a name|cannot name a column"):
        replace(METERED, append_time=taken)


def test_lateness_rules_and_the_calendar_look_at_the_corrected_time() -> None:
    record = {"id": "a", "measured_at": "2013-01-01T10:20:00Z", "sent_at": "2013-01-01T10:20:00Z"}
    value = json.dumps({**record, "received_at": "2013-01-01T10:00:00Z"}).encode()
    newest = int(datetime(2013, 1, 1, 10, 30, tzinfo=UTC).timestamp() * 1_000)
    assert Decoder(METERED).decode(raw([value]), newest).accepted[LATE_BY_MS].to_pylist() == [30 * 60_000]
    early = {**record, "measured_at": "0001-01-01T00:00:00Z", "received_at": "2013-01-01T10:00:00Z"}
    result = Decoder(METERED).decode(raw([json.dumps(early).encode()]), None)
    assert result.rejected["reasons"].to_pylist() == [
        ["expected a year from 1 to 9999 in UTC at `at`", "between(at, 2012-01-01T00:00:00Z, None)"]
    ]


def test_a_record_holds_no_corrected_time() -> None:
    times = dict.fromkeys(("measured_at", "sent_at", "received_at", "at"), "2013-01-01T10:00:00Z")
    result = Decoder(METERED).decode(raw([json.dumps({"id": "a", **times}).encode()]), None)
    assert result.rejected["reasons"].to_pylist() == [["Object contains unknown field `at`"]]


@pytest.mark.parametrize(
    ("at", "ahead"),
    [
        ("2013-01-02T01:00:00Z", None),
        ("2013-01-02T01:00:00.000001Z", "1:00:00.000001"),
        ("2013-01-05T00:00:00Z", "3 days, 0:00:00"),
    ],
)
def test_a_record_that_claims_the_future_is_quarantined(at: str, ahead: str | None) -> None:
    topic = bound_as(replace(TOPIC, max_future_skew="1 hour"), "records")
    value = GOOD.replace(b"2013-01-01T10:00:00Z", at.encode())
    result = Decoder(topic).decode(raw([GOOD, value, GOOD]), None)
    reason = f"`at` is {ahead} beyond the time at which the broker appended the record: expected at most 1 hour"
    assert result.rejected["reasons"].to_pylist() == ([[reason]] if ahead else [])
    assert result.accepted[OFFSET].to_pylist() == ([100, 102] if ahead else [100, 101, 102])


def test_a_clock_off_by_more_than_its_bound_cannot_claim_the_future() -> None:
    # 30 hours fast; corrected by one, its time is five hours beyond the append at midnight.
    times = {"measured_at": "2013-01-02T06:00:00Z", "sent_at": "2013-01-02T06:00:00Z"}
    record = {"id": "a", **times, "received_at": "2013-01-01T00:00:00Z"}
    result = Decoder(METERED).decode(raw([json.dumps(record).encode()]), None)
    assert len(result.accepted) == 0
    assert "`at` is 5:00:00 beyond" in result.rejected["reasons"].to_pylist()[0][0]
