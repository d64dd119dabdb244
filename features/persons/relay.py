"""The supervised relay of a domain: encrypts what is captured, on its way to topics.

It is `python -m twofold.features.persons.relay DOMAIN`.

A connector cannot encrypt. It writes to the intake of a topic; the relay appends to the topic what is left of it in the
clear, in order, and empties the intake.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from twofold.features.capture.captured_table import INTAKE
from twofold.features.capture.captured_topic import SEGMENT_MS, is_relayed
from twofold.infra import COMMAND
from twofold.infra.errors import BrokerUnreachable, ProcessFailed
from twofold.infra.process.file_locks import exclusive
from twofold.infra.process.service import Service, worker
from twofold.infra.process.supervisord import Program
from twofold.infra.project.chosen_domains import relay_name
from twofold.infra.project.settings import Settings
from twofold.tables.declare.code_fingerprint import covering
from twofold.tables.declare.registry import Registry, running
from twofold.tables.declare.topic import Topic

if TYPE_CHECKING:
    from twofold.features.persons.records.record_sealer import RecordSealer
    from twofold.infra.kafka.group_member import Record
    from twofold.infra.kafka.ordered_copy import OrderedCopy

MOST_AT_ONCE = 2_000
WAIT_S = 0.1
REMOVE_S = 1.0
"""How often an intake is emptied of what the topic has."""
IDLE_S = SEGMENT_MS / 1_000 + 1
"""After so long without a record the last segment of an intake can be closed."""
_OVERHEAD = 1_024  # of a batch with one record

log = logging.getLogger(__name__)


def relayed_topics(registry: Registry, domain: str) -> list[Topic]:
    """Lists the topics of a domain that its relay appends to."""
    return [topic for topic in registry.domain_topics(domain) if is_relayed(topic)]


def _programs(settings: Settings, registry: Registry) -> Iterator[Program]:
    """Yields the relay of each domain that needs one; it changes with what it has to encrypt."""
    for domain in registry.domains:
        if topics := relayed_topics(registry, domain):
            declared = " ".join(f"{topic.full_name}:{covering(topic)}" for topic in topics)
            command = [sys.executable, "-P", "-m", "twofold.features.persons.relay", domain]
            yield worker(settings, relay_name(domain), command, declared, stop_wait_s=20)


SERVICE = Service[Registry](name="relay", stage="workers", programs=_programs, loads_code=True)


@dataclass
class _Intake:
    """The source of one topic, and how far it was read.

    Attributes:
        next: the offset of the record that is to be read next.
        is_open: whether the last segment has records that were taken.
    """

    topic: Topic
    sealer: RecordSealer
    next: int
    is_open: bool = True
    taken_at: float = field(default_factory=time.monotonic)


class Relay:
    """Moves records from intakes to their topics."""

    def __init__(self, intakes: Mapping[str, _Intake], copy: OrderedCopy) -> None:
        self._intakes, self._copy = intakes, copy
        self._removed_at = 0.0
        self._removed = dict[str, int]()

    def step(self, stop: Event) -> None:
        """Moves some records on, or waits a moment for one; what is moved for good is removed from the intakes.

        Raises:
            BrokerUnreachable: the broker did not take a record. Retryable, by another relay.
        """
        self._take()
        if self._copy.flush(stop):
            self._tidy()

    def _take(self) -> None:
        from twofold.infra.kafka.ordered_copy import is_blank

        for record in self._copy.poll(MOST_AT_ONCE, WAIT_S):
            intake = self._intakes[record.topic]
            if record.offset < intake.next:
                continue
            if record.offset > intake.next:
                self._note_lost(intake, record)
            if not is_blank(record):
                self._copy.append(record, _sealed(intake, record))
            intake.next, intake.is_open, intake.taken_at = record.offset + 1, not is_blank(record), time.monotonic()

    def _tidy(self) -> None:
        """Removes from the intakes what is appended for good; closes the last segment of one where nothing arrives."""
        now = time.monotonic()
        if now < self._removed_at + REMOVE_S:
            return
        self._removed_at, reached = now, {source: intake.next for source, intake in self._intakes.items()}
        for source, intake in self._intakes.items():
            if intake.is_open and intake.next and now > intake.taken_at + IDLE_S:
                intake.taken_at = now
                self._copy.close_segment(source)
        changed = {
            source: offset for source, offset in reached.items() if offset and self._removed.get(source) != offset
        }
        if changed:
            try:
                self._copy.remove(changed)
                self._removed |= changed
            except BrokerUnreachable as error:
                log.warning("intakes are emptied later: %s", error.message)

    def _note_lost(self, intake: _Intake, record: Record) -> None:
        """Appends a record to be refused, which says until the next snapshot that changes are missing before it."""
        from twofold.features.capture.captured_table import LOST, Capture
        from twofold.features.capture.debezium_decoder import snapshot_of

        name, lost = intake.topic.full_name, record.offset - intake.next
        log.error("%s lacks %s records: its intake has kept them for a week, and no longer", name, lost)
        capture = Capture(topic=name, table="", snapshot=snapshot_of(record.value) or 1)
        source = {"name": capture.name, "sequence": '[null,"0"]', "ts_us": 0}
        said = json.dumps({"op": LOST, "source": source}).encode()
        self._copy.append(record, said, offset=record.offset - 1)


def _sealed(intake: _Intake, record: Record) -> bytes | None:
    value = intake.sealer.seal(record.value)
    others = len(record.key or b"") + sum(len(name) + len(content or b"") for name, content in record.headers)
    if value is not None and record.value and len(value) + others > intake.topic.largest_record - _OVERHEAD:
        # A topic that does not take a record would hold up all after it.
        return intake.sealer.seal_whole(record.value)
    return value


@contextmanager
def opened(settings: Settings, topics: Sequence[Topic], group: str) -> Iterator[Relay]:
    """Opens a relay of these topics, which begins after the last record that each has.

    Raises:
        BadSetting: the keys are missing.
        ProcessFailed: there is no intake.
        BrokerUnreachable: retryable.
    """
    from twofold.features.persons.keys.key_store import KeyStore
    from twofold.features.persons.records.record_sealer import RecordSealer
    from twofold.infra.kafka.ordered_copy import OrderedCopy

    sources = {f"{topic.full_name}{INTAKE}": topic for topic in topics}
    targets = {source: topic.full_name for source, topic in sources.items()}
    most_bytes = max(topic.largest_record for topic in topics)
    with (
        closing(KeyStore(settings)) as store,
        closing(OrderedCopy(settings, group, targets, most_bytes)) as copy,
    ):
        begun = copy.begin()
        yield Relay({name: _Intake(t, RecordSealer(t, store), begun[name]) for name, t in sources.items()}, copy)


def main(settings: Settings, topics: Sequence[Topic], domain: str) -> None:
    """Relays records of these topics of a domain until it is stopped.

    Raises:
        ProcessFailed: another process of this home does it.
    """
    from twofold.infra.process.kept_running import stop_on_signal

    stop = stop_on_signal()
    with exclusive(settings.home / "run" / f"{relay_name(domain)}.lock", patience_s=1.0) as ours:
        if not ours:
            raise ProcessFailed(f"Another process relays {domain}.", hint=f"`{COMMAND} status` shows it.")
        with opened(settings, topics, f"twofold.relay.{domain}") as relay:
            while not stop.is_set():
                relay.step(stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _settings = Settings.from_environment()
    main(_settings, relayed_topics(running(_settings), sys.argv[1]), sys.argv[1])
