"""Copies records of topics of one partition to other such topics, in order, from the last one that is there on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import BrokerUnreachable, ProcessFailed
from twofold.infra.kafka.group_member import Record, record_of
from twofold.infra.kafka.topic_admin import topic_ids
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

POSITION = "twofold-copied"
"""The header that says which record another one was made from: id of the topic, and offset."""
BLANK = "twofold-blank"
"""The header of a record that is none: it closes the segment before it."""
_ANSWER_S = 30.0
_LOOK_S = 1.0
_LOOKS = (10, 1_000)
"""How many of the last records are looked at for a position: some are of other producers."""
_SILENT = 2  # of syslog: lost connections are no news, since they are made again


class OrderedCopy:
    """Reads topics, and appends to others; one process at a time does so for a topic.

    Records are appended in order, and without a gap: once a record cannot be appended, none after it is. A process
    that is killed may have appended records that its successor appends again.
    """

    def __init__(self, settings: Settings, group: str, targets: Mapping[str, str], most_bytes: int) -> None:
        """Opens the connections.

        Args:
            group: a consumer group without members, which has the positions for tools that show its lag.
            targets: topic that is read -> topic that is appended to.
            most_bytes: the size of the largest record.

        Raises:
            ProcessFailed: a topic that is to be read does not exist.
            BrokerUnreachable: retryable.
        """
        from confluent_kafka import Consumer, Producer
        from confluent_kafka.admin import AdminClient

        common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": settings.bootstrap_servers,
            "log_level": _SILENT,
        }
        self._settings, self._targets = settings, targets
        self._ids = topic_ids(settings, [*targets])
        if missing := targets.keys() - self._ids.keys():
            raise ProcessFailed(
                f"The broker has no topic {', '.join(sorted(missing))}.", hint=f"{COMMAND} up makes the topics."
            )
        self._error: KafkaError | None = None
        self._admin = AdminClient(common)
        self._consumer: Consumer = Consumer(
            {
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": most_bytes,
                "fetch.wait.max.ms": 100,
            }
        )
        self._producer = Producer(
            {
                **common,
                "acks": "all",
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "message.timeout.ms": 0,  # it waits for the broker as long as that is away
                "message.max.bytes": most_bytes + (1 << 20),
                "compression.type": "lz4",
                "linger.ms": 5,
            }
        )

    def begin(self) -> dict[str, int]:
        """Reads each topic from where it goes on, and returns these offsets; records there may be gone.

        Raises:
            BrokerUnreachable: retryable.
        """
        from confluent_kafka import TopicPartition

        with _answering(self._settings):
            known = {source: self._next(source, target) for source, target in self._targets.items()}
            # From an offset whose record is gone on the first one that is left is read.
            self._consumer.assign([TopicPartition(source, 0, offset) for source, offset in known.items()])
        return known

    def _next(self, source: str, target: str) -> int:
        from confluent_kafka import TopicPartition

        _, end = self._consumer.get_watermark_offsets(TopicPartition(source, 0), timeout=_ANSWER_S)
        [committed] = self._consumer.committed([TopicPartition(source, 0)], timeout=_ANSWER_S)
        copied = self._copied(source, target) + 1
        return max(copied, committed.offset) if committed.offset <= end else copied

    def _copied(self, source: str, target: str) -> int:
        """Returns the greatest offset of the source that the end of the target names; -1 if it names none."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(target, 0)
        first, end = self._consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
        for count in _LOOKS:
            start, offsets = max(first, end - count), [-1]
            self._consumer.assign([TopicPartition(target, 0, start)])
            for message in self._read(start, end):
                offsets.append(self._offset_in(source, message))
            if max(offsets) >= 0 or start == first:
                break
        return max(offsets)

    def _read(self, start: int, end: int) -> Iterator[Message]:
        deadline = time.monotonic() + _ANSWER_S
        while start < end:
            messages = [message for message in self._consumer.consume(end - start, _LOOK_S) if not message.error()]
            if not messages and self._consumer.position(self._consumer.assignment())[0].offset >= end:
                return  # markers of transactions are the last
            if time.monotonic() > deadline:
                raise TimeoutError("the last records do not come")
            for message in messages:
                start = (message.offset() or 0) + 1
                yield message

    def _offset_in(self, source: str, message: Message) -> int:
        headers: Sequence[tuple[str, bytes | None]] = message.headers() or ()  # type: ignore[assignment]
        for name, value in headers:
            id, _, offset = (value or b"").decode(errors="replace").partition(":")
            if name == POSITION and id == self._ids[source] and offset.isdigit():
                return int(offset)
        return -1

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Reads the next records, blank ones too."""
        return [record_of(message) for message in self._consumer.consume(most, timeout_s) if not message.error()]

    def append(self, record: Record, value: bytes | None, *, offset: int | None = None) -> None:
        """Appends what a record has become, under its key and headers.

        Args:
            offset: that it stands for; None: the record's.
        """
        from confluent_kafka import KafkaException

        position = f"{self._ids[record.topic]}:{record.offset if offset is None else offset}".encode()
        headers: list[tuple[str, str | bytes | None]] = [header for header in record.headers if header[0] != POSITION]
        headers.append((POSITION, position))
        while True:
            try:
                target = self._targets[record.topic]
                self._producer.produce(target, value, record.key, partition=0, headers=headers, on_delivery=self._note)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise self._failed(error) from error

    def flush(self, stop: Event) -> bool:
        """Waits until the broker has all that was appended; False if it was asked to stop before.

        Raises:
            BrokerUnreachable: a record cannot be appended, nor any after it; a new copy begins at it. Retryable.
        """
        while self._producer.flush(_LOOK_S) and self._error is None:
            if stop.is_set():
                return False
        if self._error is not None:
            raise self._failed(self._error)
        return True

    def remove(self, before: Mapping[str, int]) -> None:
        """Removes records that are copied from the topics that were read, and commits that they are.

        Args:
            before: topic -> the offset after the last one.
        """
        from confluent_kafka import TopicPartition

        places = [TopicPartition(source, 0, offset) for source, offset in before.items()]
        with _answering(self._settings):
            # Before they are removed: what is missing between both is lost.
            self._consumer.commit(offsets=places, asynchronous=False)
            for removed in self._admin.delete_records(places, request_timeout=_ANSWER_S).values():
                removed.result(_ANSWER_S)

    def close_segment(self, source: str) -> None:
        """Appends a blank record to a topic that is read, so that the segment before it can leave the disk."""
        self._producer.produce(source, partition=0, headers=[(BLANK, b"")], on_delivery=self._note)

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    def _note(self, error: KafkaError | None, _: Message) -> None:
        self._error = self._error or error

    def _failed(self, error: object) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"The Kafka broker at {self._settings.bootstrap_servers} did not take a record: {error}.",
            hint=f"{COMMAND} status says how it does.",
        )


def is_blank(record: Record) -> bool:
    """Whether a record only closes a segment."""
    return record.value is None and any(name == BLANK for name, _ in record.headers)


@contextmanager
def _answering(settings: Settings) -> Iterator[None]:
    """Names the broker in its errors."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise BrokerUnreachable(
            f"The Kafka broker at {settings.bootstrap_servers} does not answer: {error}.",
            hint=f"{COMMAND} status says how it does.",
        ) from error
