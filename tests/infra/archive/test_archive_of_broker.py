"""What a real broker archived is read as a consumer of committed records reads it through the broker."""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from packages.twofold_archive.tests.archived_logs import seal
from tests.infra.conftest import Eventually
from twofold.batch.audit.mismatches import Mismatch, find_mismatches
from twofold.infra.archive.archive_catalog import open_archive
from twofold.infra.archive.archive_frame import frame
from twofold.infra.archive.archive_source import ArchiveSource
from twofold.infra.archive.log_union import broker_frame, log_frame
from twofold.infra.archive.platform_archive import PlatformArchive
from twofold.infra.errors import NotArchived
from twofold.infra.kafka import broker as kafka
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.kafka.uncommitted_offsets import in_transactions
from twofold.infra.process import supervisor
from twofold.infra.project.settings import Settings
from twofold_archive.format.record_columns import COLUMNS, HEADERS, RECORD
from twofold_archive.format.storage_layout import LocalTieredStorage
from twofold_archive.segment_reader import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.platform

TOPIC = "archive.mixed"
PARTITIONS = 2
SPEC = TopicSpec(
    name=TOPIC,
    partitions=PARTITIONS,
    configs={"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "retention.ms": "-1"},
)
READ = [*COLUMNS, HEADERS]
BASE_TIMESTAMP = 27  # byte of a batch's header


@pytest.fixture(scope="module")
def running(broker: Settings) -> Settings:
    """Settings of a broker whose topic was written in every codec, with transactions, by two leaders."""
    topic_admin.ensure_topics(broker, [SPEC])
    fill(broker, seed=1)
    [process] = supervisor.state(broker)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    kafka.wait_ready(broker)
    fill(broker, seed=2)
    wait_decided(broker)
    return broker


def wait_decided(settings: Settings) -> None:
    """Wait until no transaction is open: one whose end the killed broker did not write ends by its timeout."""
    from kafka import KafkaConsumer, TopicPartition

    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    latest = {p: found.latest for p, found in topic_admin.offsets(settings, [TOPIC])[TOPIC].items()}
    consumer = KafkaConsumer(bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed")
    deadline = time.monotonic() + 90
    while any(consumer.end_offsets(partitions)[p] < latest[p.partition] for p in partitions):
        assert time.monotonic() < deadline, "a transaction is open"
        time.sleep(0.5)
    consumer.close()


def fill(settings: Settings, seed: int) -> None:
    """Records of all kinds, until some segments of each partition are closed."""
    chance = random.Random(seed)
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        with_codec: dict[str, Any] = {"compression_type": codec, "batch_size": 1 << 15, "linger_ms": 5}
        plain = _producer(settings, **with_codec)
        for _ in range(600):
            _send(plain, chance)
        plain.close()
        transactional = _producer(settings, transactional_id=f"{seed}-{codec}", **with_codec)
        transactional.init_transactions()
        for _ in range(8):
            transactional.begin_transaction()
            for _ in range(chance.randrange(1, 40)):
                _send(transactional, chance)
            transactional.flush()
            transactional.commit_transaction() if chance.random() < 0.5 else transactional.abort_transaction()
        transactional.close()


def _producer(settings: Settings, **configs: Any) -> Any:
    from kafka import KafkaProducer

    return KafkaProducer(bootstrap_servers=settings.bootstrap_servers, acks="all", **configs)


def _send(producer: Any, chance: random.Random) -> None:
    value = chance.choice([None, b"", chance.randbytes(chance.randrange(8_000)), b"again " * chance.randrange(2_000)])
    headers = [(f"h{i}", chance.choice([b"", b"x"])) for i in range(chance.randrange(3))]
    key = chance.choice([None, b"", b"key"] if value is not None else [b"", b"key"])
    producer.send(TOPIC, value, key=key, headers=headers, partition=chance.randrange(PARTITIONS))


def committed(settings: Settings) -> list[tuple[Any, ...]]:
    """Every committed record through the broker, by partition and offset."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, isolation_level="read_committed", check_crcs=True
    )
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    records = []
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for batch in consumer.poll(timeout_ms=1_000).values():
            records += batch
    consumer.close()
    return sorted(
        (r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers)) for r in records
    )


def as_consumed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in rows
    )


def everything(archive: PlatformArchive) -> dict[int, tuple[int, int]]:
    return {partition: (bounds.start, bounds.end) for partition, bounds in archive.bounds(TOPIC).items()}


def with_holes(archive: PlatformArchive) -> PlatformArchive:
    """The same without the second segment of each partition."""
    kept = {
        p: replace(found, pieces=(found.pieces[0], *found.pieces[2:])) for p, found in archive.partitions[TOPIC].items()
    }
    assert all(found.holes() for found in kept.values())
    return PlatformArchive(archive.store, {TOPIC: kept})


def test_archived_rows_are_those_of_a_consumer_of_committed_records(running: Settings, eventually: Eventually) -> None:
    def is_archived() -> bool:
        found = topic_admin.offsets(running, [TOPIC])[TOPIC]
        reach = open_archive(running, [TOPIC]).partitions.get(TOPIC, {})
        return len(reach) == PARTITIONS and all(
            reach[number].pieces[-1].end == found[number].tiered and len(reach[number].pieces) >= 3 for number in reach
        )

    eventually(is_archived)
    archive = open_archive(running, [TOPIC])
    ranges = everything(archive)

    rows = [row for b in read_all(archive.plan({TOPIC: ranges}), archive.store, READ) for row in b.to_pylist()]

    consumed = [row for row in committed(running) if row[1] < ranges[row[0]][1]]
    assert as_consumed(rows) == consumed
    pieces = [piece.segment for found in archive.partitions[TOPIC].values() for piece in found.pieces]
    assert len({epoch for segment in pieces for epoch, _ in segment.epochs}) >= 2
    assert any(segment.may_have_aborts for segment in pieces)
    assert len(consumed) < sum(end - start for start, end in ranges.values()), "nothing was aborted"


def test_offsets_beyond_the_frontier_are_refused_and_found_at_the_broker(
    running: Settings, spark: SparkSession
) -> None:
    archive = open_archive(running, [TOPIC])
    whole = {number: (0, found.latest) for number, found in topic_admin.offsets(running, [TOPIC])[TOPIC].items()}
    assert all(archive.bounds(TOPIC)[number].end < end for number, (_, end) in whole.items())

    with pytest.raises(NotArchived, match="its frontier"):
        archive.plan({TOPIC: whole})

    rows = log_frame(spark, running, with_holes(archive), TOPIC, whole, READ).toArrow().to_pylist()
    assert as_consumed(rows) == committed(running)


def test_the_spark_source_gives_every_reader_the_same_rows(running: Settings, spark: SparkSession) -> None:
    archive = open_archive(running, [TOPIC])
    last = archive.bounds(TOPIC)[1].end
    spark.dataSource.register(ArchiveSource)
    source = spark.read.format("archive").option("topic", TOPIC).option("columns", ",".join(READ))
    source = source.option("bootstrap", running.bootstrap_servers).option("archive", running.archive_uri)

    whole = source.load().toArrow().to_pylist()
    some = source.option("startingOffsets", '{"1": 100}').load().toArrow().to_pylist()

    rows = frame(spark, archive, {TOPIC: everything(archive)}, READ).toArrow().to_pylist()
    assert as_consumed(whole) == as_consumed(rows)
    assert as_consumed(some) == [row for row in as_consumed(rows) if row[0] == 1 and 100 <= row[1] < last]
    with pytest.raises(Exception, match=rf"reaches up to {last}, its frontier"):
        source.option("startingOffsets", '{"1": 0}').option("endingOffsets", f'{{"1": {last + 1}}}').load().count()


def test_hidden_offsets_are_markers_and_aborted_records(running: Settings) -> None:
    shown = {(row[0], row[1]) for row in committed(running)}
    reach = topic_admin.offsets(running, [TOPIC])[TOPIC]
    hidden = {p: [(o, o + 1) for o in range(there.latest) if (p, o) not in shown] for p, there in reach.items()}
    assert all(hidden.values())

    assert in_transactions(running, TOPIC, hidden) == hidden
    assert in_transactions(running, TOPIC, {0: [(0, 1)]}) == {}, "a record of no transaction"


def test_archive_and_broker_are_the_same_until_one_of_them_is_changed(running: Settings, spark: SparkSession) -> None:
    archive = open_archive(running, [TOPIC])
    ranges = everything(archive)
    segment = archive.partitions[TOPIC][0].pieces[0].segment
    file = Path(running.archive_uri) / LocalTieredStorage().path(segment, "log")
    intact = file.read_bytes()

    def unlike() -> list[Mismatch]:
        one = frame(spark, archive, {TOPIC: ranges}, RECORD)
        return find_mismatches(one, broker_frame(spark, running, TOPIC, ranges, RECORD))

    assert unlike() == []
    length = 12 + struct.unpack_from(">i", intact, 8)[0]
    first = bytearray(intact[:length])
    struct.pack_into(">q", first, BASE_TIMESTAMP, struct.unpack_from(">q", first, BASE_TIMESTAMP)[0] + 1)
    file.write_bytes(seal(first) + intact[length:])
    try:
        [found] = unlike()
    finally:
        file.write_bytes(intact)
    assert (found.partition, found.start, found.archive) == (0, 0, found.broker)
