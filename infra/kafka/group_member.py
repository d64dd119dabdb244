"""A member of a consumer group that commits, with each position, a note about the records after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold.infra.errors import BrokerUnreachable
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

SESSION_MS = 10_000
"""After so long without a sign of a member its partitions are given to others."""
MOST_RECORDS = 50
"""Records of one poll at most."""
_OUTAGE_S = 60.0
_SILENT = 2  # of syslog: lost connections are no news, since they are made again


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record as it is in a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class GroupMember:
    """A member of a consumer group over one topic; it reads committed records.

    A partition without a position is read from the first record that is left.
    """

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        self._lost, self._held = set[int](), set[int]()
        consumer.subscribe([topic], on_revoke=self._lose, on_lost=self._lose)

    def poll(self, timeout_s: float, *, held: Collection[int] | None) -> list[Record]:
        """Reads the next records of all partitions but the held ones; None: all are held."""
        assigned = {partition.partition for partition in self._consumer.assignment()}
        wanted = assigned if held is None else assigned & set(held)
        self._consumer.pause(self._partitions(wanted - self._held))
        self._consumer.resume(self._partitions((self._held & assigned) - wanted))
        self._held = wanted | (self._held - assigned)  # a partition that is given back is held as it was
        return [
            record_of(message) for message in self._consumer.consume(MOST_RECORDS, timeout_s) if not message.error()
        ]

    def lost(self) -> set[int]:
        """Returns the partitions that were taken away since the last call, some to be given back at once."""
        lost, self._lost = self._lost, set()
        return lost

    def position(self, partition: int) -> tuple[int, str] | None:
        """Returns the committed position of a partition with its note, or None.

        Raises:
            BrokerUnreachable: it does not say so within a minute.
        """
        from confluent_kafka import KafkaException

        try:
            [committed] = self._consumer.committed(self._partitions([partition]), timeout=_OUTAGE_S)
        except KafkaException as error:
            raise BrokerUnreachable(f"The broker does not give the position of {self._topic}: {error}.") from error
        return None if committed.offset < 0 else (committed.offset, committed.metadata or "")

    def commit(self, positions: Mapping[int, tuple[int, str]]) -> bool:
        """Commits positions with their notes; False if a partition is not ours any more, or the broker is away."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(self._topic, p, offset, note) for p, (offset, note) in positions.items()]
        try:
            return all(done.error is None for done in self._consumer.commit(offsets=offsets, asynchronous=False))
        except KafkaException:
            return False

    def _lose(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._lost |= {partition.partition for partition in partitions}

    def _partitions(self, numbers: Collection[int]) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._topic, number) for number in numbers]


@contextmanager
def joined(settings: Settings, group: str, topic: str) -> Iterator[GroupMember]:
    """Joins a consumer group, and leaves it at the end."""
    # kafka-python loses its partitions if the time of a poll ends while the group settles, and reads nothing then.
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 5,
            "log_level": _SILENT,
        }
    )
    try:
        yield GroupMember(consumer, topic)
    finally:
        consumer.close()


def record_of(read: Message) -> Record:
    """Converts a message that is no error."""
    message: Any = read  # without an error it has all of these
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
    )
