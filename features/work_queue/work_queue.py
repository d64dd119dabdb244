"""A work queue: each record of a topic is done by one process of a command, or ends among the dead letters.

The position of the queue's consumer group has, as its note, which records after it are done, and how often the others
were delivered. A delivery is committed before it begins, so that one which ends this process is counted, too.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from twofold.features.work_queue.partition_progress import PartitionProgress
from twofold.features.work_queue.record_process import RecordProcess
from twofold.infra.errors import TwofoldError
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.group_member import GroupMember, Record, joined
from twofold.infra.kafka.record_producer import producing
from twofold.infra.kafka.topic_admin import TopicSpec
from twofold.infra.process.kept_running import stop_on_signal
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaProducer

AHEAD = 10
"""Records that are read for each worker, so that those which wait for another try do not hold up the others."""
LONGEST_PAUSE_S = 60.0
STOP_S = 5.0
"""How long a process may go on when the queue is stopped; the process reaper of the queue gives it ten seconds."""
LARGEST = 64 << 20
"""Bytes of the largest dead letter; no source has larger records."""
_BUSY_S, _IDLE_S, _OUTAGE_S = 0.02, 0.2, 60
_UNKNOWN = "not known: what ran it ended"


@dataclass(frozen=True, kw_only=True)
class WorkQueue:
    """A command for the records of a topic, and how it is run.

    Args:
        topic: its full name.
        name: distinguishes it from other queues over the topic.
        command: the program that gets one record at a time, and its arguments.
        workers: how many records this process works on at once.
        deliveries: how often a record is given to the command before it is a dead letter.
        timeout_s: a process that runs longer is killed, and has failed.
    """

    topic: str
    name: str
    command: Sequence[str] = ()
    workers: int = 1
    deliveries: int = 5
    timeout_s: float = 300.0

    @property
    def group(self) -> str:
        """The consumer group that all processes of the queue share."""
        return f"twofold.work.{self.topic}.{self.name}"

    @property
    def dead_letters(self) -> TopicSpec:
        """The topic of the records that are given up, which are kept for ever."""
        configs = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": str(LARGEST)}
        return TopicSpec(name=f"{self.topic}.{self.name}.dead", partitions=1, configs=configs)


class Place(NamedTuple):
    partition: int
    offset: int


@dataclass(kw_only=True)
class Job:
    """A record that was read and is not done.

    Attributes:
        due: when it may be delivered, by the monotonic clock.
        ended: how its last delivery ended.
    """

    record: Record
    due: float = 0.0
    ended: str = _UNKNOWN


class Dispatcher:
    """Hands records to processes, and keeps account of them."""

    def __init__(self, queue: WorkQueue, member: GroupMember, producer: KafkaProducer) -> None:
        self._queue, self._member, self._producer = queue, member, producer
        self._progress: dict[int, PartitionProgress] = {}
        self._jobs: dict[Place, Job] = {}
        self._running: dict[Place, RecordProcess] = {}
        self._changed = set[int]()
        self._is_full = False

    def advance(self) -> None:
        """Reads what there is room for, notes what has ended, and delivers what is due to workers that are free."""
        self._read()
        self._collect()
        chosen = list(self._choose())
        if self._commit():
            for place in chosen:
                self._start(place)
        else:
            for place in chosen:
                self._progress[place.partition].withdraw(place.offset)

    def end(self) -> None:
        """Waits a moment for what runs, and kills the rest, whose last delivery then does not count."""
        deadline = time.monotonic() + STOP_S
        while self._running and time.monotonic() < deadline:
            self._collect()
            time.sleep(_BUSY_S)
        for place, process in self._running.items():
            process.kill()
            if place in self._jobs:
                self._progress[place.partition].withdraw(place.offset)
                self._changed.add(place.partition)
        self._commit()

    def _read(self) -> None:
        # What is held is fetched again later, so reading goes on when half is done, not after each record.
        self._is_full = len(self._jobs) >= AHEAD * self._queue.workers // (2 if self._is_full else 1)
        held = None if self._is_full else [p for p, progress in self._progress.items() if progress.is_full]
        read = self._member.poll(_BUSY_S if self._jobs else _IDLE_S, held=held)
        for partition in self._member.lost():
            self._progress.pop(partition, None)
            self._changed.discard(partition)
            self._jobs = {place: job for place, job in self._jobs.items() if place.partition != partition}
        for record in read:
            partition = record.partition
            if partition not in self._progress:
                position = self._member.position(partition) or (record.offset, "")
                self._progress[partition] = PartitionProgress(*position)
            if self._progress[partition].admit(record.offset):
                self._jobs[Place(partition, record.offset)] = Job(record=record)

    def _collect(self) -> None:
        for place, process in list(self._running.items()):
            ended = process.ended()
            if ended is None:
                continue
            del self._running[place]
            if place not in self._jobs:  # its partition is another process's now, which does it again
                continue
            if ended:
                self._failed(place, ended)
            else:
                self._finish(place)

    def _choose(self) -> Iterator[Place]:
        """Yields the places of records that are delivered now, and buries those that were delivered often enough."""
        free = self._queue.workers - len(self._running)
        for place, job in list(self._jobs.items()):
            progress = self._progress[place.partition]
            if place in self._running or job.due > time.monotonic():
                continue
            if progress.deliveries(place.offset) >= self._queue.deliveries:
                self._bury(place, job)
            elif free > 0:
                free -= 1
                progress.deliver(place.offset)
                self._changed.add(place.partition)
                yield place

    def _start(self, place: Place) -> None:
        delivery = self._progress[place.partition].deliveries(place.offset)
        try:
            self._running[place] = RecordProcess(
                self._queue.command, self._jobs[place].record, delivery, self._queue.timeout_s
            )
        except OSError as error:
            self._failed(place, f"cannot run: {error.strerror}")

    def _failed(self, place: Place, ended: str) -> None:
        job, delivery = self._jobs[place], self._progress[place.partition].deliveries(place.offset)
        job.ended = ended
        if delivery < self._queue.deliveries:
            job.due = time.monotonic() + min(2.0 ** (delivery - 1), LONGEST_PAUSE_S)
        self._say(place, f"{ended}, delivery {delivery} of {self._queue.deliveries}")

    def _bury(self, place: Place, job: Job) -> None:
        """Appends a record to the dead letters; it is done once all replicas have it, else this is tried again."""
        from kafka.errors import KafkaError

        facts = {
            "topic": self._queue.topic,
            "partition": place.partition,
            "offset": place.offset,
            "deliveries": self._progress[place.partition].deliveries(place.offset),
            "ended": job.ended,
        }
        headers = [*job.record.headers, *((f"work-{name}", str(fact).encode()) for name, fact in facts.items())]
        topic = self._queue.dead_letters.name
        try:
            self._producer.send(topic, job.record.value, job.record.key, headers).get()
        except KafkaError as error:
            job.due = time.monotonic() + LONGEST_PAUSE_S
            self._say(place, f"{topic} does not take it: {error}")
        else:
            self._finish(place)
            self._say(place, f"given up, now in {topic}")

    def _finish(self, place: Place) -> None:
        del self._jobs[place]
        self._progress[place.partition].finish(place.offset)
        self._changed.add(place.partition)

    def _commit(self) -> bool:
        if self._changed and not self._member.commit({p: self._progress[p].committed() for p in self._changed}):
            return False
        self._changed.clear()
        return True

    def _say(self, place: Place, what: str) -> None:
        print(f"{self._queue.topic} {place.partition}@{place.offset}: {what}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs the queue that the argument describes, as JSON, until SIGTERM or SIGINT."""
    stop = stop_on_signal()
    queue, settings = WorkQueue(**json.loads(arguments[0])), Settings.from_environment()
    try:
        with (
            joined(settings, queue.group, queue.topic) as member,
            producing(settings, outage_s=_OUTAGE_S, most_bytes=LARGEST) as producer,
        ):
            dispatcher = Dispatcher(queue, member, producer)
            while not stop.is_set():
                dispatcher.advance()
            dispatcher.end()
    except TwofoldError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def run_below_reaper(queue: WorkQueue) -> int:
    """Runs a queue until SIGTERM or SIGINT, below a process reaper, which ends all that it leaves.

    Returns:
        Its exit code.
    """
    python = [sys.executable, "-P", "-m"]
    command = [*python, "twofold.infra.process.process_reaper", "--", *python, __name__, json.dumps(asdict(queue))]
    reaper = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: reaper.send_signal(number))
    return reaper.wait()


@dataclass(frozen=True, kw_only=True)
class QueueCounts:
    """The records of a queue that are not done.

    Attributes:
        waiting: those that were not delivered yet, with gaps that transactions and compaction leave in a log.
        begun: those that are worked on, or have failed and will be delivered again.
        dead: the dead letters.
    """

    waiting: int
    begun: int
    dead: int


def count(settings: Settings, queue: WorkQueue) -> QueueCounts:
    """Counts the records of a queue that are not done.

    Raises:
        BrokerUnreachable: retryable.
    """
    offsets = topic_admin.offsets(settings, [queue.topic, queue.dead_letters.name])
    with topic_admin.reach(settings) as client:
        committed = client.list_group_offsets(queue.group)[queue.group]
    # librdkafka ends a note with a zero byte, and cuts it off when it reads one.
    positions = {at.partition: (place.offset, place.metadata.rstrip("\0")) for at, place in committed.items()}
    waiting = begun = 0
    for partition, bounds in offsets[queue.topic].items():
        position, note = positions.get(partition, (bounds.earliest, ""))
        progress = PartitionProgress(position, note)
        begun += progress.begun
        waiting += bounds.latest - max(position, bounds.earliest) - progress.begun - progress.done
    dead = sum(bounds.latest - bounds.earliest for bounds in offsets.get(queue.dead_letters.name, {}).values())
    return QueueCounts(waiting=waiting, begun=begun, dead=dead)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
