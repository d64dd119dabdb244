"""A topic with a column of every type, and raw records of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from tests.tables.declared import bound_as
from twofold.quality.rules import between, matches, one_of
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import RAW_SCHEMA

TOPIC = bound_as(
    Topic(
        schema={
            "id": "string",
            "at": "timestamp",
            "small": "int?",
            "big": "long?",
            "ratio": "double?",
            "yes": "boolean?",
            "day": "date?",
            "tags": "array<string>?",
            "times": "array<timestamp>?",
        },
        event_time="at",
        message_key="id",
        dedup_keys=["id"],
        checks=[matches("id", "[a-z]+"), between("small", 0, 100), one_of("yes", [True])],
        max_bytes=1_000,
        max_future_skew=None,
    ),
    "records",
)
GOOD = b'{"id":"a","at":"2013-01-01T10:00:00Z"}'
APPENDED = datetime(2013, 1, 2, tzinfo=UTC)


def raw(values: Sequence[bytes | None]) -> pa.Table:
    return pa.table(
        {
            "partition": [3] * len(values),
            "offset": range(100, 100 + len(values)),
            "timestamp": [APPENDED] * len(values),
            "key": [b"k"] * len(values),
            "value": list(values),
        },
        schema=RAW_SCHEMA,
    )
