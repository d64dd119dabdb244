"""Topics that keep the newest value of each key: written in transactions, read as a mapping."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import BrokerUnreachable, WriteConflict
from twofold.infra.kafka.topic_admin import offsets
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer

Record = tuple[str, bytes, bytes | None]
"""Topic, key, and value; None: the key has none any more."""
_TRANSACTION_S = 900  # the longest that a broker allows by default
_ANSWER_S = 60
_POLL_MS = 500


class TransactionalWriter:
    """A producer of transactions; of two with one name the one that was opened last goes on.

    Args:
        name: the transactional id.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        from kafka import KafkaProducer

        with _answering(settings):
            self._producer: KafkaProducer = KafkaProducer(
                bootstrap_servers=settings.bootstrap_servers.split(","),
                transactional_id=name,
                transaction_timeout_ms=_TRANSACTION_S * 1000,
                max_block_ms=_ANSWER_S * 1000,
                allow_auto_create_topics=False,
                compression_type="lz4",
                metrics_enabled=False,
            )
            try:
                # What an earlier writer has left open is committed or given up from here on.
                self._producer.init_transactions()
            except BaseException:
                self.close()
                raise
        self._settings = settings

    def write(self, records: Iterable[Record]) -> None:
        """Writes all records, or none.

        Raises:
            WriteConflict: another writer with this name was opened. Retryable.
            BrokerUnreachable: retryable; a new writer is needed, which knows whether the records are there.
        """
        with _answering(self._settings):
            self._producer.begin_transaction()
            try:
                sent = [self._producer.send(topic, key=key, value=value) for topic, key, value in records]
                self._producer.flush(_ANSWER_S)
                for future in sent:
                    future.get(_ANSWER_S)
                self._producer.commit_transaction()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Closes it; a transaction that is open is given up by the writer after it."""
        from kafka.errors import KafkaTimeoutError

        with suppress(KafkaTimeoutError):  # it asks for the end of what is being sent, and hid why that is given up
            self._producer.close(timeout=0)


class NewestValues:
    """The newest value of each key of a topic with one partition, committed ones alone.

    Each look reads on from where the one before it ended.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._consumer: KafkaConsumer | None = None
        self._values: dict[bytes, bytes] = {}

    def look(self, *, decided: bool = False) -> Mapping[bytes, bytes]:
        """Returns the values as they are now; none while there is no such topic.

        Commits of others after the start of an open transaction are not returned.

        Args:
            decided: waits until each transaction that is open now is committed or given up.

        Raises:
            BrokerUnreachable: retryable.
        """
        from kafka import TopicPartition
        from kafka.errors import KafkaTimeoutError

        place = TopicPartition(self._topic, 0)
        with _answering(self._settings):
            consumer = self._consumer = self._consumer or self._opened()
            if not consumer.partitions_for_topic(self._topic):
                return {}
            if not consumer.assignment():
                consumer.assign([place])
                consumer.seek_to_beginning(place)
            end, deadline = consumer.end_offsets([place])[place], time.monotonic() + _ANSWER_S
            if decided:
                end = offsets(self._settings, [self._topic])[self._topic][0].latest
            while consumer.position(place) < end:
                if time.monotonic() > deadline:
                    raise KafkaTimeoutError(f"{self._topic} was not read within {_ANSWER_S} s")
                for record in consumer.poll(timeout_ms=_POLL_MS).get(place, []):
                    if record.value is None:
                        self._values.pop(record.key, None)
                    else:
                        self._values[record.key] = record.value
        return self._values

    def _opened(self) -> KafkaConsumer:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=self._settings.bootstrap_servers.split(","),
            isolation_level="read_committed",
            enable_auto_commit=False,
            metrics_enabled=False,
        )


@contextmanager
def _answering(settings: Settings) -> Iterator[None]:
    """Names the broker in its errors."""
    from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

    try:
        yield
    except KafkaError as error:
        # A record behind the one that was refused has the reason in its arguments.
        if any(isinstance(why, ProducerFencedError | InvalidProducerEpochError) for why in (error, *error.args)):
            raise WriteConflict("Another process writes these records.", hint="They are read again.") from error
        raise BrokerUnreachable(
            f"The Kafka broker at {settings.bootstrap_servers} does not do what it should: {error}.",
            hint=f"{COMMAND} status says how it does.",
            address=settings.bootstrap_servers,
        ) from error
