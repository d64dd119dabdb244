"""A real broker: topics become as declared, segments reach the archive, kill -9 loses nothing."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from tests import ROOT
from tests.infra.conftest import Eventually
from twofold.infra.errors import BadArgument, PortTaken
from twofold.infra.kafka import broker as kafka
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.topic_admin import PartitionOffsets, TopicSpec
from twofold.infra.process import supervisor
from twofold.infra.project.project import VARIABLE
from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.platform

MIB = 1 << 20
TIERED = TopicSpec(
    name="tiered",
    partitions=1,
    configs={"remote.storage.enable": "true", "segment.bytes": str(MIB), "retention.ms": "-1"},
)


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
    return topic_admin.offsets(settings, [topic])[topic][0]


def test_a_missing_topic_is_created_once(broker: Settings) -> None:
    spec = TopicSpec(name="created", partitions=3, configs={"message.timestamp.type": "LogAppendTime"})

    assert topic_admin.ensure_topics(broker, [spec]) == ["created: created with 3 partitions"]
    assert topic_admin.ensure_topics(broker, [spec]) == []
    assert sorted(topic_admin.offsets(broker, ["created"])["created"]) == [0, 1, 2]


def test_a_config_that_differs_is_set_and_the_others_stay(broker: Settings) -> None:
    before = TopicSpec(name="altered", partitions=1, configs={"retention.ms": "1000", "segment.bytes": str(MIB)})
    topic_admin.ensure_topics(broker, [before])

    after = replace(before, configs={"retention.ms": "-1"})

    assert topic_admin.ensure_topics(broker, [after]) == ["altered: retention.ms 1000 -> -1"]
    assert topic_admin.ensure_topics(broker, [replace(before, configs={"segment.bytes": str(MIB)})]) == []


def test_partitions_are_added_and_never_taken_away(broker: Settings) -> None:
    spec = TopicSpec(name="growing", partitions=1)
    topic_admin.ensure_topics(broker, [spec])

    assert topic_admin.ensure_topics(broker, [replace(spec, partitions=2)]) == ["growing: 1 -> 2 partitions"]
    with pytest.raises(BadArgument, match="growing has 2 partitions; 1 are declared"):
        topic_admin.ensure_topics(broker, [spec])


def test_a_topic_that_does_not_exist_has_no_offsets(broker: Settings) -> None:
    assert topic_admin.offsets(broker, ["nowhere"]) == {}
    assert topic_admin.offsets(broker, []) == {}


def test_a_topic_that_was_created_again_has_another_id(broker: Settings, eventually: Eventually) -> None:
    topic_admin.ensure_topics(broker, [TopicSpec(name="anew", partitions=1)])
    before = topic_admin.topic_ids(broker, ["anew", "nowhere"])
    assert list(before) == ["anew"]
    assert topic_admin.topic_ids(broker, ["anew"]) == before

    with topic_admin.reach(broker) as admin:
        admin.delete_topics(["anew"])
    eventually(lambda: topic_admin.topic_ids(broker, ["anew"]) == {})
    topic_admin.ensure_topics(broker, [TopicSpec(name="anew", partitions=1)])

    assert topic_admin.topic_ids(broker, ["anew"])["anew"] != before["anew"]


def test_other_tools_see_the_offsets_of_a_group_without_members(broker: Settings, eventually: Eventually) -> None:
    topic_admin.ensure_topics(broker, [TopicSpec(name="followed", partitions=2)])
    ours = topic_admin.KeptAdmin(broker)
    for offsets in ({0: 3, 1: 0}, {0: 7, 1: 2}):
        # A broker that had no group makes the topic of their offsets first.
        eventually(partial(ours.commit, "twofold.test", {"followed": offsets}))
        with topic_admin.reach(broker) as admin:
            found = admin.list_group_offsets("twofold.test")["twofold.test"]
        assert {partition.partition: at.offset for partition, at in found.items()} == offsets
    assert ours.topic_ids(["followed"]) == topic_admin.topic_ids(broker, ["followed"])


def test_the_time_of_a_record_is_reported_by_its_offset(broker: Settings) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topic_admin.ensure_topics(broker, [TopicSpec(name="timed", partitions=1, configs=config)])
    between = []
    for value in (b"first", b"second"):
        between.append(time.time() * 1_000)
        produce(broker, "timed", [value])
        time.sleep(0.01)

    times = [topic_admin.appended_ms(broker, {"timed": {0: offset}})["timed"][0] for offset in (0, 1)]

    assert between[0] - 1 <= times[0] <= between[1] <= times[1] + 1
    assert topic_admin.appended_ms(broker, {}) == {}


def test_a_record_of_two_hundred_kilobytes_is_accepted(broker: Settings) -> None:
    topic_admin.ensure_topics(broker, [TopicSpec(name="large", partitions=1)])
    value = os.urandom(200_000)

    produce(broker, "large", [value])

    assert consume(broker, "large", 1) == [value]


def test_the_broker_of_another_home_is_not_taken_for_ours(broker: Settings, tmp_path: Path) -> None:
    own = replace(broker, home=tmp_path)
    kafka.log_directory(own).mkdir(parents=True)
    (kafka.log_directory(own) / "meta.properties").write_text("version=1\ncluster.id=another\n")

    with pytest.raises(PortTaken, match=f"Port {broker.kafka_port} for the Kafka broker is taken by java"):
        kafka.wait_ready(own)


def test_closed_segments_reach_the_archive_and_survive_a_kill(broker: Settings, eventually: Eventually) -> None:
    values = [os.urandom(100_000) for _ in range(25)]
    topic_admin.ensure_topics(broker, [TIERED])
    assert only_partition(broker, "tiered") == PartitionOffsets(earliest=0, earliest_local=0, latest=0, tiered=None)
    produce(broker, "tiered", values)

    # 25 records of 100 kB fill two segments of 1 MiB, ten each; the third is still open.
    eventually(lambda: only_partition(broker, "tiered").tiered == 20)
    archived = kafka.tiered_directory(broker).glob("kafka-tiered-storage/tiered-0-*/*.log")
    assert sorted(int(path.name[:20]) for path in archived) == [0, 10]

    [process] = supervisor.state(broker)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: [p.starts for p in supervisor.state(broker)] == [process.starts + 1])
    kafka.wait_ready(broker)

    assert consume(broker, "tiered", 25) == values
    assert only_partition(broker, "tiered").latest == 25
    eventually(lambda: only_partition(broker, "tiered").tiered == 20)


def test_closing_segments_reach_the_archive_with_the_next_record(broker: Settings, eventually: Eventually) -> None:
    topic_admin.ensure_topics(broker, [replace(TIERED, name="closing")])
    produce(broker, "closing", [b"1", b"2"])
    time.sleep(1.1)
    with topic_admin.closing_segments(broker, "closing"):
        produce(broker, "closing", [b"3"])
        eventually(lambda: only_partition(broker, "closing").tiered == 2)

    with topic_admin.reach(broker) as admin:
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "closing")])
    assert described["topic"]["closing"].keys() == TIERED.configs.keys()
    assert consume(broker, "closing", 3) == [b"1", b"2", b"3"]


def test_preparing_again_keeps_the_log(broker: Settings) -> None:
    identity = (kafka.log_directory(broker) / "meta.properties").read_bytes()

    kafka.prepare(broker)

    assert (kafka.log_directory(broker) / "meta.properties").read_bytes() == identity


def test_a_format_that_was_cut_off_is_done_again(settings: Settings) -> None:
    half = kafka.log_directory(settings).with_name("log.formatting")
    half.mkdir(parents=True)
    (half / "meta.properties").write_text("version=1\n")

    kafka.prepare(settings)

    assert "cluster.id" in (kafka.log_directory(settings) / "meta.properties").read_text()
    assert not half.exists()


def test_formatting_writes_nothing_into_the_working_directory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv(VARIABLE, str(ROOT))
    monkeypatch.chdir(elsewhere)

    kafka.prepare(settings)

    assert list(elsewhere.iterdir()) == []


def test_the_broker_listens_on_this_machine_only(broker: Settings) -> None:
    import psutil

    [process] = supervisor.state(broker)
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_a_home_with_a_space_in_its_path_is_served(broker: Settings) -> None:
    assert " " in str(broker.home)
    assert topic_admin.ensure_topics(broker, [TopicSpec(name="spaced", partitions=1)]) == [
        "spaced: created with 1 partitions"
    ]
