"""Both patterns of messaging over one topic: a queue whose workers crash, and groups that each read all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from tests.servers import wait_until
from twofold.features.work_queue.work_queue import QueueCounts, WorkQueue, count
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.record_producer import producing
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.project.settings import Settings

pytestmark = pytest.mark.platform

POISON = 41
NOTE = 'value=$(cat); echo "$value $RECORD_PARTITION $RECORD_OFFSET $RECORD_DELIVERY" >> "$NOTES"; '


def sent(settings: Settings, topic: str, records: int, partitions: int = 2) -> None:
    """Numbers, in batches as producers send them."""
    topic_admin.ensure_topics(settings, [TopicSpec(name=topic, partitions=partitions)])
    with producing(settings, outage_s=60) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def read(settings: Settings, topic: str, group: str, records: int) -> dict[int, list[int]]:
    """What a consumer of a group reads, by partition."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=settings.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    )
    found: dict[int, list[int]] = {}
    deadline = time.monotonic() + 120
    while sum(map(len, found.values())) < records and time.monotonic() < deadline:
        for partition, read in consumer.poll(timeout_ms=500).items():
            found.setdefault(partition.partition, []).extend(int(record.value) for record in read)
    consumer.close()
    return found


class Work:
    """Runs `twofold work` over a topic with a shell script; what the script notes of records is read here."""

    def __init__(self, settings: Settings, topic: str, notes: Path) -> None:
        self.settings, self.notes = settings, notes
        self.queue = WorkQueue(topic=topic, name="one")

    @contextmanager
    def running(self, script: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        environment = {**os.environ, **self.settings.environment(), "NOTES": str(self.notes)}
        words = [str(ROOT / "twofold"), "work", self.queue.topic, "--name", "one", *options]
        with subprocess.Popen(
            [*words, "--", "sh", "-c", NOTE + script], env=environment, cwd=self.notes.parent
        ) as work:
            try:
                yield work
            finally:
                work.terminate()

    @property
    def noted(self) -> list[tuple[int, ...]]:
        """Value, partition, offset and delivery of each start of the script."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [tuple(map(int, line.split())) for line in lines]

    @property
    def counts(self) -> QueueCounts:
        return count(self.settings, self.queue)


@pytest.fixture
def work(broker: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Work:
    return Work(broker, f"jobs.{request.node.name[5:25]}", tmp_path / "notes")


def queue_process(work: subprocess.Popen[bytes]) -> psutil.Process:
    """The process that hands out records, below its reaper."""
    [reaper] = psutil.Process(work.pid).children()
    [found] = reaper.children()
    return found


def scripts(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_queue_whose_workers_crash_and_groups_that_read_all(work: Work) -> None:
    """30 to 60 seconds: a record that kills its process waits 1, 2 and 4 seconds before it is given up, and a queue
    that was killed is missed by the broker for ten."""
    chance = random.Random(7)
    sent(work.settings, work.queue.topic, 300)
    script = f"sleep 0.02; [ $value != {POISON} ] || kill -9 $$"
    options = ["--workers", "4", "--deliveries", "4"]

    with work.running(script, *options) as first:
        wait_until(lambda: len(work.noted) > 20, 60)
        killed = queue_process(first)
        for _ in range(8):
            with suppress(psutil.NoSuchProcess):
                for victim in chance.sample(running := killed.children(), min(1, len(running))):
                    victim.kill()
            time.sleep(0.1)
        left = killed.children(recursive=True)
        killed.kill()
        assert first.wait(30) == 128 + signal.SIGKILL
        assert scripts(left) == []
    assert work.counts.waiting > 0
    with work.running(script, *options) as second:
        wait_until(lambda: work.counts == QueueCounts(waiting=0, begun=0, dead=1), 120)
        second.terminate()
        assert second.wait(30) == 0

    assert {value for value, *_ in work.noted} == set(range(300))
    assert [delivery for value, *_, delivery in work.noted if value == POISON] == [1, 2, 3, 4]
    places = [(partition, offset) for _, partition, offset, _ in work.noted if partition == 0]
    assert places != sorted(places)
    [letter] = dead_letters(work)
    assert (letter.value, dict(letter.headers)) == (
        b"%d" % POISON,
        {
            "work-topic": work.queue.topic.encode(),
            "work-partition": b"1",
            "work-offset": b"%d" % (POISON // 2),
            "work-deliveries": b"4",
            "work-ended": b"signal 9",
        },
    )
    for group in ("readers", "others"):
        everything = {0: list(range(0, 300, 2)), 1: list(range(1, 300, 2))}
        assert read(work.settings, work.queue.topic, group, 300) == everything


def dead_letters(work: Work) -> list[object]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        work.queue.dead_letters.name,
        bootstrap_servers=work.settings.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=3_000,
    )
    found = list(consumer)
    consumer.close()
    return found


def test_what_a_stopped_queue_releases_was_not_delivered(work: Work) -> None:
    sent(work.settings, work.queue.topic, 2, partitions=1)
    with work.running("[ $value = 1 ] || sleep 600", "--workers", "2") as stopped:
        wait_until(lambda: len(work.noted) == 2, 60)
        running = queue_process(stopped).children(recursive=True)
        wait_until(lambda: work.counts == QueueCounts(waiting=0, begun=1, dead=0), 30)

        stopped.send_signal(signal.SIGINT)

        assert stopped.wait(30) == 0
        assert scripts(running) == []
    assert work.counts == QueueCounts(waiting=1, begun=0, dead=0)
    with work.running("true"):
        wait_until(lambda: work.counts == QueueCounts(waiting=0, begun=0, dead=0), 60)
    assert work.noted[2:] == [(0, 0, 0, 1)]


def test_nothing_goes_on_after_the_command_line_was_killed(work: Work) -> None:
    sent(work.settings, work.queue.topic, 1, partitions=1)
    with work.running("sleep 600") as killed:
        wait_until(lambda: len(work.noted) == 1, 60)
        everything = psutil.Process(killed.pid).children(recursive=True)
        killed.kill()
        wait_until(lambda: scripts(everything) == [], 30)
