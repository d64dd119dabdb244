"""Writes records to topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twofold.infra import COMMAND
from twofold.infra.errors import BrokerUnreachable
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaProducer

FAREWELL_S = 30
"""How long a producer whose work has ended, or failed, waits for the last acknowledgements."""


@contextmanager
def producing(settings: Settings, *, outage_s: int, most_bytes: int = 1 << 20) -> Iterator[KafkaProducer]:
    """Opens an idempotent producer that outlasts a restart of the broker without loss, repetition or reordering.

    Args:
        outage_s: how long the broker may be away before records are given up.
        most_bytes: the size of the largest record.

    Raises:
        BrokerUnreachable: the broker does not answer at the start.
    """
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    try:
        producer = KafkaProducer(
            bootstrap_servers=settings.bootstrap_servers.split(","),
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            compression_type="lz4",
            linger_ms=5,
            batch_size=512 * 1024,
            max_request_size=most_bytes,
            delivery_timeout_ms=outage_s * 1000,
            max_block_ms=outage_s * 1000,
            reconnect_backoff_max_ms=1_000,
            metrics_enabled=False,
        )
    except KafkaError as error:
        raise BrokerUnreachable(
            f"No Kafka broker answers at {settings.bootstrap_servers}: {error}.",
            hint=f"{COMMAND} status says how it does.",
        ) from error
    try:
        yield producer
    finally:
        producer.close(timeout=FAREWELL_S)
