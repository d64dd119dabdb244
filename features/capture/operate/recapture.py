"""Captures a table of the database again: with a new snapshot, and deletions of rows that are not in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from twofold.features.capture import debezium_connector
from twofold.features.capture.captured_table import INTAKE, Capture, again
from twofold.features.capture.captured_topic import is_relayed
from twofold.features.capture.snapshot_deletions import deletions, newest_snapshot
from twofold.infra import COMMAND
from twofold.infra.errors import BrokerUnreachable, CaptureFailed, ProcessFailed
from twofold.infra.kafka import topic_admin
from twofold.infra.kafka.record_producer import producing
from twofold.infra.kafka.topic_admin import PartitionOffsets
from twofold.tables.refresh.events.ingested_offsets import read_ingested_offsets

if TYPE_CHECKING:
    from twofold.infra.delta.lake import Lake
    from twofold.infra.project.settings import Settings
    from twofold.tables.declare.topic import Topic

STALLED_S = 120.0
OUTAGE_S = 120


def current(settings: Settings, lake: Lake, capture: Capture) -> Capture:
    """Returns the capture of the topic to continue: the newest that Connect knows, else the first one.

    Raises:
        CaptureFailed: Connect has lost the position of the topic's capture.
        ConnectUnreachable: retryable.
    """
    captures = debezium_connector.known(settings, capture)
    if not captures and newest_snapshot(lake, capture):
        raise CaptureFailed(
            f"{capture.topic} has changes, but Kafka Connect knows no capture of it: later changes may be lost.",
            hint=f"{again(capture.topic)}.",
            topic=capture.topic,
        )
    return captures[-1] if captures else capture


def begin(settings: Settings, lake: Lake, capture: Capture) -> Capture:
    """Starts the capture of the table from a new snapshot, or continues an unfinished one.

    The previous connector is stopped, and kept until `finish`.

    Raises:
        CaptureFailed: there is no such table, or the connector does not run.
        ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    debezium_connector.require_table(settings, capture)
    captures = debezium_connector.known(settings, capture)
    following = captures[-1] if len(captures) > 1 and _is_whole(settings, captures[-1]) else None
    if following is None:
        last = max([newest_snapshot(lake, capture), *(before.snapshot for before in captures)])
        if last:
            debezium_connector.ensure_retired(settings, replace(capture, snapshot=last))
        following = replace(capture, snapshot=last + 1)
    debezium_connector.ensure(settings, following)
    return following


def wait_ingested(settings: Settings, lake: Lake, topic: Topic, *, stalled_s: float = STALLED_S) -> None:
    """Waits until the events have all current records of the topic, and of its intake if it has one.

    Raises:
        ProcessFailed: the relay has taken nothing, or the stream has ingested nothing, for `stalled_s`.
    """
    name = topic.full_name

    def ingested() -> int:
        return read_ingested_offsets(lake, topic).ends.get(0, 0) if lake.exists(name) else 0

    if is_relayed(topic):
        intake = f"{name}{INTAKE}"
        _wait(
            "relay",
            name,
            intake,
            _bounds(settings, intake).latest,
            lambda: _bounds(settings, intake).earliest,
            stalled_s,
        )
    _wait("stream", name, name, _bounds(settings, name).latest, ingested, stalled_s)


def _bounds(settings: Settings, name: str) -> PartitionOffsets:
    return topic_admin.offsets(settings, [name])[name][0]


def _wait(what: str, topic: str, name: str, end: int, reached: Callable[[], int], stalled_s: float) -> None:
    before, since = -1, time.monotonic()
    while (now := reached()) < end:
        if now > before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > stalled_s:
            raise ProcessFailed(
                f"The {what} is at offset {now:,} of {name}; the snapshot ends before {end:,}.",
                hint=f"{COMMAND} status shows how it is; then `{COMMAND} recapture {topic}` continues.",
            )
        time.sleep(0.3)


def finish(settings: Settings, lake: Lake, topic: Topic, capture: Capture) -> int:
    """Sends deletions of the rows that are not in the new snapshot to the topic; returns their number.

    The events must have the whole snapshot.

    Raises:
        BrokerUnreachable, ConnectUnreachable, DatabaseUnreachable: retryable.
    """
    count = _send(settings, topic.full_name, deletions(lake, topic, capture))
    for before in debezium_connector.known(settings, capture):
        if before.snapshot < capture.snapshot:
            debezium_connector.remove(settings, before.name)
    return count


def _send(settings: Settings, topic: str, events: Iterable[tuple[bytes, bytes]]) -> int:
    from kafka.errors import KafkaError

    try:
        with producing(settings, outage_s=OUTAGE_S) as producer:
            sent = [producer.send(topic, key=key, value=value, partition=0) for key, value in events]
            for acknowledged in sent:
                acknowledged.get()
    except KafkaError as error:
        raise BrokerUnreachable(
            f"The broker at {settings.bootstrap_servers} did not take the deletions of {topic}: {error}.",
            hint=f"`{COMMAND} recapture {topic}` continues.",
        ) from error
    return len(sent)


def _is_whole(settings: Settings, capture: Capture) -> bool:
    try:
        debezium_connector.require_whole(settings, capture)
    except CaptureFailed:
        return False
    return True
