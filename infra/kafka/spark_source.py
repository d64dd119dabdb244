"""Options of Spark's Kafka source that every reader of records shares."""

from __future__ import annotations

from twofold.infra.project.settings import Settings

FETCH_WAIT_MS = 10
"""How long the broker holds a fetch while it has no records for it.

Spark reads a partition up to an offset that exists, then requests its first and its last offset. By then the consumer
has sent its next fetch, and the broker answers the requests of a connection in order: with Kafka's default each
partition of each micro-batch would wait 500 ms. Spark's consumers fetch only within tasks: a short wait costs nothing.
"""


def source_options(settings: Settings, *, headers: bool) -> dict[str, str]:
    """Returns options that read committed records and fail if offsets are missing."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
    }
