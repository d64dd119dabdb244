from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from twofold.demo.traffic import producer
from twofold.demo.traffic.fault_injection import CORRUPTIONS, TRUE, FaultInjection, Message, encode
from twofold.demo.traffic.flight_source import Departure, Observation, Record, records
from twofold.demo.traffic.shop_source import SavedSearch
from twofold.infra.errors import BadArgument
from twofold.tables.declare import registry
from twofold.tables.declare.topic import Topic

JANUARY_2 = (date(2013, 1, 2), date(2013, 1, 3))

DEPARTURE = Departure(
    flight_id="UA1545/2013-01-01T10:15Z",
    kind="departed",
    carrier="UA",
    flight=1545,
    tail_number=None,
    origin="EWR",
    destination="IAH",
    scheduled_at=datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
    at=datetime(2013, 1, 1, 10, 17, tzinfo=UTC),
    delay_min=2,
)


@pytest.fixture(scope="module")
def topics() -> dict[str, Topic]:
    return {topic.full_name: topic for topic in registry.load().domain_topics("flights")}


@pytest.fixture(scope="module")
def two_days() -> list[Record]:
    return [record for _, day in records(date(2013, 1, 1), date(2013, 1, 3)) for record in day]


def sent(found: list[Record], topics: dict[str, Topic], how: FaultInjection) -> list[Message]:
    return [message for record in found for message in how.messages(record, topics[record.topic])]


def test_a_record_is_compact_json_with_times_in_utc(topics: dict[str, Topic]) -> None:
    assert encode(DEPARTURE, topics["flights.departures"], datetime(2013, 1, 1, 10, 18, 30, tzinfo=UTC)) == (
        b'{"flight_id":"UA1545/2013-01-01T10:15Z","kind":"departed","carrier":"UA","flight":1545,"tail_number":null,'
        b'"origin":"EWR","destination":"IAH","scheduled_at":"2013-01-01T10:15:00Z","occurred_at":"2013-01-01T10:17:00Z",'
        b'"delay_min":2,"reported_at":"2013-01-01T10:18:30Z"}'
    )


def test_perfect_reporters_send_every_record_once_the_moment_it_happens(
    topics: dict[str, Topic], two_days: list[Record]
) -> None:
    found = sent(two_days, topics, FaultInjection.none())
    assert [(m.send_at, m.key, m.kind) for m in found] == [(r.at, r.key.encode(), TRUE) for r in two_days]


def test_a_compacted_topic_gets_every_record_once_and_at_once() -> None:
    """A late repetition would be what it holds."""
    topic = registry.load().find_topic("shop.saved_searches")
    saved = SavedSearch(customer="c1", name="a", query="lamp", at=datetime(2026, 3, 2, tzinfo=UTC))
    value = b'{"customer":"c1","name":"a","query":"lamp","saved_at":"2026-03-02T00:00:00Z"}'
    how = FaultInjection(minutes_share=0, hours_share=1, duplicate_share=1, corrupt_share=1)
    assert list(how.messages(saved, topic)) == [Message(saved.at, "shop.saved_searches", b"c1/a", value, TRUE)]


def test_a_record_suffers_the_same_whatever_else_is_sent(topics: dict[str, Topic], two_days: list[Record]) -> None:
    both = sent(two_days, topics, FaultInjection())
    [(_, second_day)] = records(*JANUARY_2)
    alone = sent(second_day, topics, FaultInjection())
    assert len(alone) > 1_900
    assert set(alone) <= set(both)


def test_another_seed_lets_other_records_suffer(topics: dict[str, Topic], two_days: list[Record]) -> None:
    def hurt(seed: int) -> set[bytes]:
        return {m.key for m in sent(two_days, topics, FaultInjection(seed=seed)) if m.kind != TRUE}

    assert hurt(1) == hurt(1)
    assert len(hurt(1) & hurt(2)) < len(hurt(1)) / 2


def test_shares_are_those_that_were_asked_for(topics: dict[str, Topic]) -> None:
    """Over 5,500 records every bound is five standard deviations wide or wider."""
    week = [record for _, day in records(date(2013, 1, 7), date(2013, 1, 10)) for record in day]
    how = FaultInjection(minutes_share=0.2, hours_share=0.05, duplicate_share=0.1, corrupt_share=0.1)
    found = sent(week, topics, how)
    kinds = Counter(m.kind.partition(":")[0] for m in found)
    assert kinds["true"] == len(week)
    assert kinds["duplicate"] / len(week) == pytest.approx(0.1, abs=0.025)
    assert kinds["corrupt"] / len(week) == pytest.approx(0.1, abs=0.025)
    delays = [m.send_at - r.at for m, r in zip((m for m in found if m.kind == TRUE), week, strict=True)]
    assert sum(d >= timedelta(hours=1) for d in delays) / len(week) == pytest.approx(0.05, abs=0.02)
    assert sum(d >= timedelta(minutes=1) for d in delays) / len(week) == pytest.approx(0.25, abs=0.03)
    assert timedelta(hours=24) < max(delays) <= timedelta(hours=48)
    assert timedelta(seconds=1) <= min(delays)


def test_a_duplicate_is_the_same_bytes_up_to_ten_minutes_later(
    topics: dict[str, Topic], two_days: list[Record]
) -> None:
    for record in two_days[:200]:
        first, again = FaultInjection(duplicate_share=1, corrupt_share=0).messages(record, topics[record.topic])
        assert (again.topic, again.key, again.value, again.kind) == (*first[1:4], "duplicate")
        assert timedelta(0) <= again.send_at - first.send_at <= timedelta(minutes=10)


def test_garbage_comes_in_addition_to_the_true_record(topics: dict[str, Topic], two_days: list[Record]) -> None:
    record = two_days[0]
    first, garbage = FaultInjection(corrupt_share=1, duplicate_share=0).messages(record, topics[record.topic])
    assert first.kind == TRUE
    assert garbage.kind.startswith("corrupt:")
    assert garbage.key == first.key
    assert garbage.value != first.value


def test_reported_at_is_when_the_record_reaches_us(topics: dict[str, Topic], two_days: list[Record]) -> None:
    for message in sent(two_days[:300], topics, FaultInjection()):
        if message.kind == TRUE:
            assert datetime.fromisoformat(json.loads(message.value)["reported_at"]) == message.send_at


def wrong(kind: str, value: bytes, topic: Topic, true: dict[str, Any]) -> bool:
    """Whether the value has the fault that its kind promises, told by nothing but Python's JSON."""
    if kind == "oversized":
        return topic.max_bytes < len(value) < 1 << 20 and json.loads(value) == true
    if kind == "invalid_utf8":
        return not _decodes(value)
    if kind == "truncated":
        return not _parses(value) and len(value) > 0
    pairs = json.loads(value, object_pairs_hook=list)
    now = dict(pairs)
    different = [column for column in true if now[column] != true[column]]
    if kind == "nan":
        return b":NaN" in value and len(different) == 1
    if kind == "epoch_milliseconds":
        return different == [topic.event_time] and 1_356_998_400_000 <= now[topic.event_time] < 1_388_534_400_000
    if kind == "duplicate_key":
        written = [cell for column, cell in pairs if column == topic.event_time]
        return len(written) == 2 and written[0] == true[topic.event_time] != written[1]
    if kind == "unknown_field":
        return not different and set(now) - set(topic.schema) == {"remark"}
    if kind == "broken_rule":
        return now.get("delay_min", 99_999) == 99_999 and now.get("humidity_pct", 999) == 999 and len(different) == 1
    [column] = different
    return kind == "wrong_type" and type(now[column]) is not type(true[column])


def _parses(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_garbage_has_the_fault_that_its_kind_promises(
    kind: str, topics: dict[str, Topic], two_days: list[Record]
) -> None:
    how = FaultInjection(corrupt_share=1, duplicate_share=0, corruptions=[kind])
    some = [*two_days[:40], *[r for r in two_days if isinstance(r, Observation)][:40]]
    assert {record.topic for record in some} == set(topics)
    for record in some:
        topic = topics[record.topic]
        true, garbage = how.messages(record, topic)
        assert garbage.kind == f"corrupt:{kind}"
        assert wrong(kind, garbage.value, topic, json.loads(true.value)), garbage.value[:400]


@pytest.mark.parametrize(("domain", "start"), [("flights", date(2013, 1, 1)), ("shop", date(2026, 3, 2))])
def test_the_platform_takes_every_true_record_and_no_garbage(domain: str, start: date) -> None:
    from twofold.features.webhooks.webhook_topic import webhook_topics
    from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA, Decoder

    elsewhere = {topic.full_name for topic in webhook_topics(registry.load())}
    declared = {
        topic.full_name: topic
        for topic in registry.load().domain_topics(domain)
        if not topic.captures and topic.full_name not in elsewhere
    }
    messages = list(
        producer.messages(domain, start, start + timedelta(days=2), declared, FaultInjection(corrupt_share=0.5))
    )
    assert {message.topic for message in messages} == declared.keys()
    for name, topic in declared.items():
        found = [message for message in messages if message.topic == name]
        raw = [
            {"partition": 0, "offset": n, "timestamp": m.send_at, "key": m.key, "value": m.value}
            for n, m in enumerate(found)
        ]
        decoded = Decoder(topic).decode(pa.RecordBatch.from_pylist(raw, RAW_SCHEMA), None)
        rejected = set(decoded.rejected["_offset"].to_pylist())
        assert rejected == {n for n, m in enumerate(found) if m.kind.startswith("corrupt:")}


@pytest.mark.parametrize(
    "what",
    [
        {"hours_share": 1.5},
        {"hours_share": 0.6, "minutes_share": 0.6},
        {"corrupt_share": -0.1},
        {"prompt_s": -1},
        {"corruptions": ["rust"]},
    ],
)
def test_imperfections_that_cannot_be_meant_are_refused(what: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        FaultInjection(**what)
