"""Finds out from the broker why a consumer of committed records gets nothing at some offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twofold.infra.errors import BrokerUnreachable
from twofold.infra.kafka.topic_admin import TIMEOUT_S, reach
from twofold.infra.offset_ranges import Range, Spans
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

_FETCH_BYTES = 1 << 20
_TIERED_S = 30.0  # a broker gives up on tiered storage after 0.5 s, and goes on reading
_TOPICS_BY_NAME = 12  # the last version of a fetch in which topics go by their names


def in_transactions(settings: Settings, topic: str, holes: Spans) -> dict[int, list[Range]]:
    """Returns the parts of these ranges that hold transaction markers or aborted records.

    The broker never returns those to consumers of committed records. All other offsets of the ranges are missing from
    its log, or should have been returned.

    Raises:
        BrokerUnreachable: retryable.
    """
    uncommitted: dict[int, list[Range]] = {}
    with reach(settings) as client:
        [described] = client.describe_topics([topic])
        leaders = {p["partition_index"]: p["leader_id"] for p in described["partitions"]}
        for partition, ranges in holes.items():
            for start, end in ranges:
                for low, high, is_transaction in _batches(client, leaders[partition], topic, partition, (start, end)):
                    if is_transaction and low < end:
                        uncommitted.setdefault(partition, []).append((max(start, low), min(end, high)))
    return uncommitted


def _batches(
    client: KafkaAdminClient, leader: int, topic: str, partition: int, asked: Range
) -> Iterator[tuple[int, int, bool]]:
    """Yields the batches that hold offsets of a range: `[start, end)` of each, and whether it is of a transaction."""
    from kafka.record import MemoryRecords

    at, end = asked
    while at < end:
        records = MemoryRecords(_fetched(client, leader, topic, partition, at))
        before = at
        while at < end and (batch := records.next_batch()) is not None:
            if batch.next_offset > at:
                yield batch.base_offset, batch.next_offset, batch.is_transactional or batch.is_control_batch
                at = batch.next_offset
        if at == before:
            return


def _fetched(client: KafkaAdminClient, leader: int, topic: str, partition: int, offset: int) -> bytes:
    """Fetches batches, starting with the one that holds an offset; empty after the end of the broker's log.

    A broker that cannot read tiered storage in time returns no batch, and is asked again.
    """
    deadline = time.monotonic() + _TIERED_S
    while True:
        batches, end = _answered(client, leader, topic, partition, offset)
        if batches or offset >= end:
            return batches
        if time.monotonic() > deadline:
            raise BrokerUnreachable(
                f"{topic}, partition {partition}: the broker gives no batch at offset {offset}, and its log ends at"
                f" {end}.",
                hint="Try again; when it happens again, the log broker.log says why.",
            )


def _answered(client: KafkaAdminClient, leader: int, topic: str, partition: int, offset: int) -> tuple[bytes, int]:
    """Sends one fetch request at an offset; returns the batches and the end of the log.

    kafka-python's own consumer skips markers silently, so the request is sent directly.
    """
    from kafka.protocol.consumer import FetchRequest

    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=int(TIMEOUT_S * 1000 / 2),
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,  # no session
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_TOPICS_BY_NAME,
    )
    manager = client._manager
    response = manager.run(manager.send, request, leader)
    [answer] = response.responses[0].partitions
    if answer.error_code:
        raise BrokerUnreachable(
            f"{topic}, partition {partition}: the broker does not give offset {offset} (error {answer.error_code}).",
            hint="Try again; when it happens again, the log broker.log says why.",
        )
    return bytes(answer.records or b""), int(answer.high_watermark)
