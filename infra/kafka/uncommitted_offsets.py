"""Asks the broker why a consumer of committed records sees nothing at some offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.errors import BrokerUnreachable
from infra.kafka.topic_admin import TIMEOUT_S, reach
from infra.offset_ranges import Range, Spans
from infra.settings import Settings

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

_FETCH_BYTES = 1 << 20
_TIERED_S = 30.0  # a broker gives up on tiered storage after 0.5 s, and goes on reading
_TOPICS_BY_NAME = 12  # the last version of a fetch in which topics go by their names


def in_transactions(settings: Settings, topic: str, holes: Spans) -> dict[int, list[Range]]:
    """The parts of these ranges that batches of transactions fill: markers, and records that were aborted.

    The broker never returns them to consumers of committed records. What is not among them is not in its log at all, or
    should have been seen.

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
    """The batches that hold offsets of a range: `[start, end)` of each, and whether it is of a transaction."""
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
    """Batches from the one on that holds an offset, as the broker has them; none beyond the end of its log.

    A broker that does not have the batches of tiered storage in time answers with none, and is asked again.
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
    """The answer to one request at an offset, and the end of the log.

    A consumer of kafka-python passes over markers without a word, so its own request is sent here.
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
