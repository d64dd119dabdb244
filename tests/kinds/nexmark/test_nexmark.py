"""Nexmark: each query's table, corrected, equals DuckDB's answer from the log, rows that are still open included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from benchmarks.nexmark import DECLARED, nexmark_events
from benchmarks.nexmark.nexmark_events import START, Event, events
from tests.fuzz.fuzz_cases import Schedule, Sent
from tests.fuzz.fuzz_check import Subject, run
from tests.kinds.nexmark.nexmark_oracle import Oracle
from twofold.tables.declare.registry import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 4_000  # 200 seconds, 100 of them of one day and 100 of the next


def log_of(some: Sequence[Event]) -> list[Sent]:
    """The records, in seconds since the first event instead of minutes."""
    sent = nexmark_events.log_of(some)
    return [Sent(int((record.at - START).total_seconds()), record.topic, record.value) for record in sent]


NEXMARK = Subject(
    domain="nexmark",
    registry=load(DECLARED),
    log_of=log_of,
    owners=lambda _: {},
    oracle=lambda _, world: Oracle(world),
)


@pytest.mark.prove
@pytest.mark.timeout(1_200)
def test_after_reconcile_every_query_equals_what_duckdb_says_of_the_log(spark: SparkSession) -> None:
    """Sixteen tables take in two micro-batches, with a restart between them: half a minute."""
    assert len(NEXMARK.registry.tables) == 16
    schedule = Schedule(cuts=(120,), restarts=frozenset({0}), reconciles=())
    verdict = run(spark, list(events(EVENTS)), schedule, subject=NEXMARK)
    assert not verdict.faults, "\n".join(verdict.faults)
