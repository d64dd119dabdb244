from __future__ import annotations

import json
import os
import signal
import threading
import time
import zlib
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from twofold import personal
from twofold.demo.traffic import producer
from twofold.demo.traffic.ack_journal import read
from twofold.demo.traffic.fault_injection import FaultInjection
from twofold.demo.traffic.flight_source import EARLIEST_BEFORE_MIDNIGHT, ZONE
from twofold.features.persons.keys.ciphertext import is_sealed
from twofold.features.persons.keys.key_store import KeyStore
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.keys.reader import Reader
from twofold.features.persons.records.personal import with_sealed_columns
from twofold.infra.errors import BadArgument, BrokerUnreachable
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry
from twofold.tables.declare.topic import Topic

DAY: dict[str, Any] = {"domain": "flights", "start": date(2013, 1, 15), "end": date(2013, 1, 16)}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"domain": "boats"}, "boats"),
        ({"start": date(2013, 1, 16)}, "not before"),
        ({"start": date(2012, 12, 31)}, "leaves the source"),
        ({"end": date(2014, 1, 2)}, "leaves the source"),
        ({"speed": 0}, "speed=0"),
        ({"speed": -2.0}, "speed=-2"),
        ({"speed": float("nan")}, "speed=nan"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_touched(
    wrong: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadArgument, match=says):
        producer.run(Settings(home=tmp_path / "home", kafka_port=1), **{**DAY, **wrong})
    assert not (tmp_path / "home").exists()


def test_a_broker_that_does_not_answer_is_reported_and_leaves_no_journal(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1 "):
        producer.run(Settings(home=tmp_path / "home", kafka_port=1), **DAY)
    assert not (tmp_path / "home").exists()


def topics_of_flights() -> dict[str, Topic]:
    return {topic.full_name: topic for topic in registry.load().domain_topics("flights")}


@pytest.fixture(scope="module")
def topics() -> dict[str, Topic]:
    return topics_of_flights()


def test_messages_are_sent_in_order_of_arrival_across_days(topics: dict[str, Topic]) -> None:
    found = list(
        producer.messages("flights", date(2013, 1, 1), date(2013, 1, 6), topics, FaultInjection(hours_share=0.3))
    )
    assert found == sorted(found)
    happened_late = sum(m.send_at > datetime(2013, 1, 6, 12, tzinfo=ZONE) for m in found)
    assert happened_late > 100  # records of the last days that were reported up to two days after


def test_two_ranges_send_what_one_range_over_both_sends(topics: dict[str, Topic]) -> None:
    a, b, c = date(2013, 3, 9), date(2013, 3, 10), date(2013, 3, 11)
    how = FaultInjection(corrupt_share=0.05)
    halves = [*producer.messages("flights", a, b, topics, how), *producer.messages("flights", b, c, topics, how)]
    assert sorted(halves) == list(producer.messages("flights", a, c, topics, how))


def test_no_record_happens_long_before_its_day(topics: dict[str, Topic]) -> None:
    for day in (date(2013, 1, 1) + timedelta(days=n) for n in range(0, 364, 60)):
        first = next(producer.messages("flights", day, day + timedelta(days=1), topics, FaultInjection.none()))
        assert first.send_at >= datetime(day.year, day.month, day.day, tzinfo=ZONE) - EARLIEST_BEFORE_MIDNIGHT


def test_the_partition_of_a_key_is_where_kafka_puts_it() -> None:
    """The hash of `21` is the first example in the tests of Kafka's own Java client."""
    assert producer._hash(b"21") == -973932308 & 0x7FFFFFFF


def test_speed_holds_messages_back_until_they_are_due(topics: dict[str, Topic]) -> None:
    source = producer.messages("flights", date(2013, 1, 15), date(2013, 1, 16), topics, FaultInjection.none())
    hour = 3_600
    began = time.monotonic()
    paced = producer._paced(source, 10 * hour, threading.Event())
    first = next(paced)
    for message in paced:
        if message.send_at >= first.send_at + timedelta(hours=5):
            break
    assert 0.5 <= time.monotonic() - began < 10


def test_a_pause_ends_the_moment_that_the_run_is_reported_to_end(topics: dict[str, Topic]) -> None:
    source = producer.messages("flights", date(2013, 1, 15), date(2013, 1, 16), topics, FaultInjection.none())
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    assert len(list(producer._paced(source, 0.001, stop))) < 10
    assert time.monotonic() - began < 20


def test_the_first_signal_ends_the_run_in_order_and_the_second_is_as_usual() -> None:
    stop = threading.Event()
    usual = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with producer._stopped_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(1)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == usual


def contents(settings: Settings) -> dict[tuple[str, int, int], tuple[str, int]]:
    """Topic, partition, offset -> key and checksum, of every record on the broker."""
    from kafka import KafkaConsumer, TopicPartition

    ends = {
        TopicPartition(topic, number): bounds.latest
        for topic, partitions in offsets(settings, list(topics_of_flights())).items()
        for number, bounds in partitions.items()
    }
    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers, group_id=None)
    consumer.assign(list(ends))
    consumer.seek_to_beginning()
    found = {}
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(timeout_ms=1_000).values():
            for r in records:
                found[r.topic, r.partition, r.offset] = (r.key.decode(), zlib.crc32(r.value))
    consumer.close()
    return found


def journalled(summary: producer.Summary) -> dict[tuple[str, int, int], tuple[str, int]]:
    rows = list(read(summary.journal))
    found = {(row.topic, row.partition, row.offset): (row.key, row.crc) for row in rows}
    assert len(found) == len(rows) == summary.records
    return found


@pytest.mark.platform
def test_the_journal_of_a_day_is_what_the_topics_hold(log: Settings) -> None:
    """15 January: 894 flights, 881 landings, 72 observations, counted with grep and awk."""
    seen: list[producer.Progress] = []
    summary = producer.run(log, **DAY, on_progress=seen.append)
    assert summary.complete
    assert {topic: kinds["true"] for topic, kinds in summary.acknowledged.items()} == {
        "flights.departures": 894,
        "flights.arrivals": 881,
        "flights.weather": 72,
    }
    held = contents(log)
    assert journalled(summary) == held
    partitions: dict[str, set[int]] = {}
    for (topic, partition, _), (key, _) in held.items():
        if topic != "flights.weather":
            partitions.setdefault(key, set()).add(partition)
    assert {len(numbers) for numbers in partitions.values()} == {1}
    assert len(partitions) == 894
    assert set.union(*partitions.values()) == {0, 1, 2}
    assert sum(seen[-1].acknowledged.values()) == seen[-1].sent == summary.records


@pytest.mark.platform
def test_a_broker_killed_in_the_middle_loses_nothing_and_repeats_nothing(broker: Settings, log: Settings) -> None:
    killed: list[int] = []

    def kill_once(progress: producer.Progress) -> None:
        if not killed and sum(progress.acknowledged.values()) > 2_000:
            [process] = supervisor.state(broker)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)

    range_of_days = {**DAY, "end": date(2013, 1, 29)}
    summary = producer.run(log, **range_of_days, on_progress=kill_once)
    assert killed
    assert summary.complete
    held = contents(log)
    assert journalled(summary) == held
    sent = list(producer.messages("flights", DAY["start"], date(2013, 1, 29), topics_of_flights(), FaultInjection()))
    assert Counter(held.values()) == Counter((m.key.decode(), zlib.crc32(m.value)) for m in sent)


@pytest.mark.platform
def test_a_run_that_is_reported_to_end_journals_all_that_it_sent(log: Settings) -> None:
    stop = threading.Event()

    def stop_early(progress: producer.Progress) -> None:
        if progress.sent:
            stop.set()

    summary = producer.run(log, **DAY, speed=7_200, stop=stop, on_progress=stop_early)
    assert not summary.complete
    assert 0 < summary.records < 1_500
    assert journalled(summary) == contents(log)


@pytest.mark.platform
def test_what_is_personal_is_encrypted_before_it_is_sent(log: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka import KafkaConsumer

    declared = registry.load()
    weather = declared.topics["flights.weather"]
    changed = replace(weather, schema={**weather.schema, "temperature_f": personal("airport")}, checks=())
    topics = {**declared.topics, weather.full_name: with_sealed_columns(changed)}
    monkeypatch.setattr(registry, "load", lambda: registry.Registry(topics, {}))
    make_keys(log)
    sent = [
        json.loads(m.value)
        for m in producer.messages(*DAY.values(), topics, FaultInjection.none())
        if m.topic == weather.full_name
    ]
    producer.run(log, **DAY, imperfections=FaultInjection.none())
    consumer = KafkaConsumer(
        weather.full_name,
        bootstrap_servers=log.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    found = [json.loads(record.value) for _, record in zip(sent, consumer, strict=False)]
    consumer.close()
    assert all(is_sealed(record["temperature_f"].encode()) for record in found if record["temperature_f"] is not None)
    with closing(KeyStore(log)) as store:
        for record in found:
            [text], _ = Reader(store, "test").values([record["temperature_f"]])
            record["temperature_f"] = text and json.loads(text)
    assert len(sent) > 50
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, sent))
