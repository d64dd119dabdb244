"""Sends a range of a domain's days to its topics."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from heapq import merge
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from twofold.demo.traffic.ack_journal import AckJournal, Row, checksum
from twofold.demo.traffic.fault_injection import FaultInjection, Message
from twofold.demo.traffic.shop_database import Transaction
from twofold.demo.traffic.sources import DATABASES, require_days, source_of
from twofold.features.persons.records.record_sealer import sealing
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, BrokerUnreachable
from twofold.infra.kafka import topic_admin as broker_topics
from twofold.infra.kafka.record_producer import FAREWELL_S, producing
from twofold.infra.project.settings import Settings
from twofold.tables.declare import registry
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import RecordMetadata

OUTAGE_S = 600
"""How long the broker may be away in the middle of a run before the run gives up."""
IN_FLIGHT = 10_000
"""Records that may wait for their acknowledgement; kafka-python itself would buffer without bound."""
PROGRESS_S = 0.2

E = TypeVar("E", bound=Message | Transaction)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a run.

    Attributes:
        sent: records handed to the producer.
        acknowledged: topic -> records in the journal.
        event_time: the instant of the source that the run has reached; None before the first record.
    """

    sent: int
    acknowledged: Mapping[str, int]
    event_time: datetime | None
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The summary of a run.

    Attributes:
        acknowledged: topic -> kind (`true`, `duplicate`, `corrupt:...`) -> records.
        journal: the file that lists them.
        complete: False if a signal or `stop` ended the run early; all sent records are acknowledged in any case.
    """

    start: date
    end: date
    acknowledged: Mapping[str, Mapping[str, int]]
    journal: Path
    elapsed_s: float
    complete: bool

    @property
    def records(self) -> int:
        return sum(sum(kinds.values()) for kinds in self.acknowledged.values())


def run(
    settings: Settings,
    *,
    domain: str,
    start: date,
    end: date,
    speed: float | None = None,
    imperfections: FaultInjection | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Summary:
    """Sends the records of `[start, end)` and journals every acknowledgement; the shop also writes to its database.

    A second run sends everything again: repetitions at new offsets.

    Args:
        start, end: days of the domain's source.
        speed: seconds of the source per second of real time; None: as fast as the broker accepts it.
        imperfections: None: the default ones.
        on_progress: called several times per second, from this thread, and once at the end.
        stop: set it to end the run early; in the main thread Ctrl-C and SIGTERM do.

    Raises:
        BadArgument: before anything is touched, also if the topics are missing: nothing was sent.
        DatabaseUnreachable, StatementRefused: the shop's database does not accept a write.
        BrokerUnreachable: at the start, or away for longer than `OUTAGE_S`; acknowledged records are in the journal.
    """
    imperfections = imperfections or FaultInjection()
    _check(domain, start, end, speed)
    topics = {topic.full_name: topic for topic in registry.load().domain_topics(domain)}
    _require_topics(settings, topics)
    stop, written = stop or threading.Event(), DATABASES.get(domain)
    with (
        _stopped_by_signals(stop),
        written.connected(settings) if written else nullcontext() as database,
        AckJournal.begin(settings, domain, datetime.now(UTC)) as journal,
        sealing(settings, topics.values()) as seal,
        producing(settings, outage_s=OUTAGE_S) as producer,
    ):
        outbox = _Outbox(producer, journal, topics, stop)
        events: Iterator[Message | Transaction] = messages(domain, start, end, topics, imperfections)
        if written:
            events = merge(events, written.transactions(start, end), key=lambda event: event.send_at)
        try:
            for event in _paced(events, speed, stop):
                if written and database and isinstance(event, Transaction):
                    written.commit(database, event)
                elif isinstance(event, Message):
                    outbox.send(event._replace(value=seal(event.topic, event.value) or b""))
                if on_progress is not None and outbox.progress_due():
                    on_progress(outbox.progress())
        finally:
            outbox.settle()
        outbox.raise_failure()
    progress = outbox.progress()
    if on_progress is not None:
        on_progress(progress)
    return outbox.summary(start, end)


def messages(
    domain: str, start: date, end: date, topics: Mapping[str, Topic], imperfections: FaultInjection
) -> Iterator[Message]:
    """Yields the messages for `[start, end)`, in the order of their arrival.

    Args:
        topics: full name -> declaration, of every topic of the domain.
    """
    source, waiting = source_of(domain), list[Message]()
    for day, records in source.records(start, end):
        midnight = datetime(day.year, day.month, day.day, tzinfo=source.ZONE)
        due, waiting = _split(waiting, midnight - source.EARLIEST_BEFORE_MIDNIGHT)
        yield from due
        for record in records:
            waiting.extend(imperfections.messages(record, topics[record.topic]))
        waiting.sort()
    yield from waiting


def _split(ordered: list[Message], instant: datetime) -> tuple[list[Message], list[Message]]:
    position = next((i for i, message in enumerate(ordered) if message.send_at >= instant), len(ordered))
    return ordered[:position], ordered[position:]


def _check(domain: str, start: date, end: date, speed: float | None) -> None:
    require_days(domain, start, end)
    if speed is not None and not (speed > 0 and math.isfinite(speed)):
        raise BadArgument(
            f"speed={speed}: expected a number above 0.", hint="1 is real time; leave it out to go at full speed."
        )


def _require_topics(settings: Settings, topics: Mapping[str, Topic]) -> None:
    """Refuses to send to missing topics: automatically created ones would lack partitions and tiering."""
    there = broker_topics.offsets(settings, list(topics))
    for name, topic in topics.items():
        if len(there.get(name, ())) != topic.partitions:
            raise BadArgument(
                f"Topic {name} has {len(there.get(name, ()))} partitions at {settings.bootstrap_servers}; "
                f"{topic.partitions} are declared.",
                hint=f"{COMMAND} up makes the topics as they are declared.",
            )


@lru_cache(maxsize=1 << 15)
def _hash(key: bytes) -> int:
    """Computes Kafka's own hash of a key; modulo the number of partitions it is the default partition of any producer.

    It is cached, since it is computed in Python and a flight's key occurs twice or more.
    """
    from kafka.partitioner.default import murmur2

    return int(murmur2(key)) & 0x7FFFFFFF


def _paced(source: Iterator[E], speed: float | None, stop: threading.Event) -> Iterator[E]:
    """Delays each event until it is due; ends early, even during a pause, if `stop` is set."""
    first: datetime | None = None
    began = time.monotonic()
    for event in source:
        if speed is not None:
            first = first or event.send_at
            due_s = (event.send_at - first).total_seconds() / speed
            stop.wait(min(max(0.0, due_s - (time.monotonic() - began)), threading.TIMEOUT_MAX))
        if stop.is_set():
            return
        yield event


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Stops the run in order at the first Ctrl-C or SIGTERM, and as usual at the second; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    usual = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number in numbers:
            signal.signal(number, usual[number])

    def end(number: int, frame: FrameType | None) -> None:
        log.info("traffic ends early", extra={"signal": signal.Signals(number).name})
        stop.set()
        restore()

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()


class _Outbox:
    """Passes records to the producer and its acknowledgements to the journal.

    Callbacks run on the producer's thread.
    """

    def __init__(
        self, producer: KafkaProducer, journal: AckJournal, topics: Mapping[str, Topic], stop: threading.Event
    ) -> None:
        self._producer = producer
        self._partitions = {name: topic.partitions for name, topic in topics.items()}
        self._journal = journal
        self._stop = stop
        self._sent = 0
        self._answered = 0
        self._acknowledged: Counter[tuple[str, str]] = Counter()
        self._failure: Exception | None = None
        self._began = time.monotonic()
        self._reported = self._began
        self._event_time: datetime | None = None

    def send(self, message: Message) -> None:
        """Sends one record; waits while too many are unacknowledged, and sends nothing once `stop` is set.

        Raises:
            BrokerUnreachable: an earlier record could not be delivered.
        """
        while self._sent - self._answered >= IN_FLIGHT and self._failure is None and not self._stop.is_set():
            time.sleep(0.001)
        self.raise_failure()
        if self._stop.is_set():
            return
        _, topic, key, value, _ = message
        partition = _hash(key) % self._partitions[topic]
        future = self._producer.send(topic, value=value, key=key, partition=partition)
        self._sent += 1
        self._event_time = message.send_at
        future.add_callback(partial(self._on_acknowledgement, message))
        future.add_errback(self._on_failure)

    def settle(self) -> None:
        """Waits until the broker has answered for every record, or a time limit is over."""
        from kafka.errors import KafkaError

        try:
            hopeful = self._failure is None and not self._stop.is_set()
            self._producer.flush(timeout=OUTAGE_S if hopeful else FAREWELL_S)
        except KafkaError as error:
            self._failure = self._failure or error

    def raise_failure(self) -> None:
        """Raises the error of the producer's thread, if there is one."""
        from kafka.errors import KafkaError

        if isinstance(self._failure, KafkaError):
            raise BrokerUnreachable(
                f"The broker did not take a record: {self._failure}.",
                hint="What it took is in the journal. When it answers again, start the same range once more.",
            ) from self._failure
        if self._failure is not None:
            raise self._failure

    def progress_due(self) -> bool:
        """Whether progress should be reported now, several times per second."""
        now = time.monotonic()
        if now - self._reported < PROGRESS_S:
            return False
        self._reported = now
        return True

    def progress(self) -> Progress:
        by_topic: Counter[str] = Counter()
        for (topic, _), count in self._acknowledged.copy().items():
            by_topic[topic] += count
        return Progress(
            sent=self._sent,
            acknowledged=by_topic,
            event_time=self._event_time,
            elapsed_s=time.monotonic() - self._began,
        )

    def summary(self, start: date, end: date) -> Summary:
        """Returns the summary of the run that sent these days."""
        acknowledged: dict[str, dict[str, int]] = {}
        for (topic, kind), count in sorted(self._acknowledged.items()):
            acknowledged.setdefault(topic, {})[kind] = count
        return Summary(
            start=start,
            end=end,
            acknowledged=acknowledged,
            journal=self._journal.path,
            elapsed_s=self.progress().elapsed_s,
            complete=not self._stop.is_set(),
        )

    def _on_acknowledgement(self, message: Message, metadata: RecordMetadata) -> None:
        _, topic, key, value, kind = message
        row = Row(topic, metadata.partition, metadata.offset, kind, key.decode(), checksum(value))
        try:
            self._journal.append(row)
        except OSError as error:
            # kafka-python logs an error of a callback and continues.
            self._failure = self._failure or error
        self._acknowledged[topic, kind] += 1
        self._answered += 1

    def _on_failure(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._answered += 1
