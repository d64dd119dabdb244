"""A real broker: topics become as declared, segments reach the archive, kill -9 loses nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra import broker, supervisor, topics
from infra.errors import BadArgument
from infra.settings import Settings
from infra.topics import PartitionOffsets, TopicSpec
from tests.infra.conftest import Eventually, free_port

pytestmark = pytest.mark.platform

MIB = 1 << 20
TIERED = TopicSpec(
    name="tiered",
    partitions=1,
    configs={"remote.storage.enable": "true", "segment.bytes": str(MIB), "retention.ms": "-1"},
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a supervised broker, ready."""
    settings = Settings(home=tmp_path_factory.mktemp("broker"), kafka_port=free_port(), controller_port=free_port())
    try:
        broker.prepare(settings)
        supervisor.start(settings, [broker.program(settings)])
        broker.wait_ready(settings)
        yield settings
    finally:
        supervisor.stop(settings)


def produce(settings: Settings, topic: str, values: list[bytes]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers, acks="all")
    acknowledged = [producer.send(topic, value) for value in values]
    producer.close()
    assert all(future.succeeded() for future in acknowledged)


def consume(settings: Settings, topic: str, count: int) -> list[bytes]:
    """The first values of a topic of one partition."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=settings.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def only_partition(settings: Settings, topic: str) -> PartitionOffsets:
    return topics.offsets(settings, [topic])[topic][0]


def test_a_missing_topic_is_created_once(running: Settings) -> None:
    spec = TopicSpec(name="created", partitions=3, configs={"message.timestamp.type": "LogAppendTime"})

    assert topics.ensure_topics(running, [spec]) == ["created: created with 3 partitions"]
    assert topics.ensure_topics(running, [spec]) == []
    assert sorted(topics.offsets(running, ["created"])["created"]) == [0, 1, 2]


def test_a_config_that_differs_is_set_and_the_others_stay(running: Settings) -> None:
    before = TopicSpec(name="altered", partitions=1, configs={"retention.ms": "1000", "segment.bytes": str(MIB)})
    topics.ensure_topics(running, [before])

    after = replace(before, configs={"retention.ms": "-1"})

    assert topics.ensure_topics(running, [after]) == ["altered: retention.ms 1000 -> -1"]
    assert topics.ensure_topics(running, [replace(before, configs={"segment.bytes": str(MIB)})]) == []


def test_partitions_are_added_and_never_taken_away(running: Settings) -> None:
    spec = TopicSpec(name="growing", partitions=1)
    topics.ensure_topics(running, [spec])

    assert topics.ensure_topics(running, [replace(spec, partitions=2)]) == ["growing: 1 -> 2 partitions"]
    with pytest.raises(BadArgument, match="growing has 2 partitions; 1 are declared"):
        topics.ensure_topics(running, [spec])


def test_a_topic_that_does_not_exist_has_no_offsets(running: Settings) -> None:
    assert topics.offsets(running, ["nowhere"]) == {}
    assert topics.offsets(running, []) == {}


def test_a_topic_that_was_made_anew_has_another_id(running: Settings, eventually: Eventually) -> None:
    topics.ensure_topics(running, [TopicSpec(name="anew", partitions=1)])
    before = topics.topic_ids(running, ["anew", "nowhere"])
    assert list(before) == ["anew"]
    assert topics.topic_ids(running, ["anew"]) == before

    with topics.reach(running) as admin:
        admin.delete_topics(["anew"])
    eventually(lambda: topics.topic_ids(running, ["anew"]) == {})
    topics.ensure_topics(running, [TopicSpec(name="anew", partitions=1)])

    assert topics.topic_ids(running, ["anew"])["anew"] != before["anew"]


def test_the_time_of_a_record_is_told_by_its_offset(running: Settings) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topics.ensure_topics(running, [TopicSpec(name="timed", partitions=1, configs=config)])
    between = []
    for value in (b"first", b"second"):
        between.append(time.time() * 1_000)
        produce(running, "timed", [value])
        time.sleep(0.01)

    times = [topics.appended_ms(running, {"timed": {0: offset}})["timed"][0] for offset in (0, 1)]

    assert between[0] - 1 <= times[0] <= between[1] <= times[1] + 1
    assert topics.appended_ms(running, {}) == {}


def test_a_record_of_two_hundred_kilobytes_is_accepted(running: Settings) -> None:
    topics.ensure_topics(running, [TopicSpec(name="large", partitions=1)])
    value = os.urandom(200_000)

    produce(running, "large", [value])

    assert consume(running, "large", 1) == [value]


def test_closed_segments_reach_the_archive_and_a_killed_broker_comes_back_with_all(
    running: Settings, eventually: Eventually
) -> None:
    values = [os.urandom(100_000) for _ in range(25)]
    topics.ensure_topics(running, [TIERED])
    assert only_partition(running, "tiered") == PartitionOffsets(earliest=0, earliest_local=0, latest=0, tiered=None)
    produce(running, "tiered", values)

    # 25 records of 100 kB fill two segments of 1 MiB, ten each; the third is still open.
    eventually(lambda: only_partition(running, "tiered").tiered == 20)
    archived = broker.tiered_directory(running).glob("kafka-tiered-storage/tiered-0-*/*.log")
    assert sorted(int(path.name[:20]) for path in archived) == [0, 10]

    [process] = supervisor.state(running)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: [p.starts for p in supervisor.state(running)] == [2])
    broker.wait_ready(running)

    assert consume(running, "tiered", 25) == values
    assert only_partition(running, "tiered").latest == 25
    eventually(lambda: only_partition(running, "tiered").tiered == 20)


def test_preparing_again_keeps_the_log(running: Settings) -> None:
    identity = (broker.log_directory(running) / "meta.properties").read_bytes()

    broker.prepare(running)

    assert (broker.log_directory(running) / "meta.properties").read_bytes() == identity


def test_a_format_that_was_cut_off_is_begun_anew(settings: Settings) -> None:
    half = broker.log_directory(settings).with_name("log.formatting")
    half.mkdir(parents=True)
    (half / "meta.properties").write_text("version=1\n")

    broker.prepare(settings)

    assert "cluster.id" in (broker.log_directory(settings) / "meta.properties").read_text()
    assert not half.exists()


def test_formatting_writes_nothing_into_the_working_directory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    broker.prepare(settings)

    assert list(elsewhere.iterdir()) == []


def test_the_broker_listens_on_this_machine_only(running: Settings) -> None:
    import psutil

    [process] = supervisor.state(running)
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_a_home_with_a_space_in_its_path_is_served(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "a home", kafka_port=free_port(), controller_port=free_port())
    try:
        broker.prepare(settings)
        supervisor.start(settings, [broker.program(settings)])
        broker.wait_ready(settings)
        assert topics.ensure_topics(settings, [TIERED]) == ["tiered: created with 1 partitions"]
    finally:
        supervisor.stop(settings)
