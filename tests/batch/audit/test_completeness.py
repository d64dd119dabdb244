"""A certificate says which offsets went into a version of a table, and does not say it when it is not so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.tables.declared import a_table, a_topic, bound_as
from twofold.batch.audit.completeness import Coverage, certify, coverage, missing
from twofold.batch.ledgers.reconcile_position import ReconcilePosition
from twofold.batch.ledgers.run_ledgers import Ledgers
from twofold.batch.ledgers.run_result import RunResult
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.instants import EPOCH
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.declare.registry import Registry
from twofold.tables.declare.table import Table
from twofold.tables.refresh.events import lost_offsets, transaction_offsets
from twofold.tables.refresh.events.ingested_offsets import IngestedOffsets
from twofold.tables.refresh.events.lost_offsets import Gap
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema
from twofold.tables.refresh.scope import Scope

TOPIC = a_topic()
HOURS = a_table()


def days_of(hours: Any) -> Any:
    return hours


def both_of(hours: Any, readings: Any) -> Any:
    return hours, readings


DAYS = bound_as(replace(HOURS, derive=days_of, closes_at=None), "days")
BOTH = bound_as(replace(HOURS, derive=both_of, closes_at=None), "both")
REGISTRY = Registry({TOPIC.full_name: TOPIC}, {t.full_name: t for t in (HOURS, DAYS, BOTH)})
ROWS = pa.table({"sensor": ["a", "b"]})


class Log:
    """Ingests what the test says, and lets streams say how far they read."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._frontier = IngestedOffsets()
        lake.ensure(TOPIC.full_name, events_schema(TOPIC), statistics=[OFFSET])
        lake.ensure(TOPIC.full_name + QUARANTINE, QUARANTINE_SCHEMA, statistics=[OFFSET])
        for table in REGISTRY.tables.values():
            lake.ensure(table.full_name, ROWS.schema, statistics=[])

    def ingest(
        self,
        starts: dict[int, int],
        ends: dict[int, int],
        events: list[tuple[int, int]],
        bad: Any = (),
        late_by_ms: int | None = None,
    ) -> int:
        """Events and bad records at (partition, offset) of a micro-batch; the version of events with them."""
        self._frontier = self._frontier.after({p: (starts.get(p, end), end) for p, end in ends.items()}, 0)
        self.quarantine(bad)
        stamp = CommitTag(app="ingest", version=self._frontier.number, info=self._frontier.info)
        return Writer(self.lake, TOPIC.full_name).append(rows(events, late_by_ms), stamp).version or 0

    def quarantine(self, bad: Any) -> None:
        values = [{PARTITION: p, OFFSET: o, "_appended_at": EPOCH, "value": b"", "reasons": ["bad"]} for p, o in bad]
        if values:
            table = pa.Table.from_pylist(values, schema=QUARANTINE_SCHEMA)
            self._append(TOPIC.full_name + QUARANTINE, table, {})

    def add(self, events: list[tuple[int, int]]) -> None:
        """Events that nobody ingested."""
        self._append(TOPIC.full_name, rows(events), {})

    def stream(self, table: Table, parts: Sequence[str] = (), **next_versions: int) -> int:
        """A micro-batch of the table; the version that it made."""
        versions = {f"plant.{name}": number for name, number in next_versions.items()}
        info = {"versions": versions, "parts": list(parts), "fingerprint": "f00d"}
        return self._append(table.full_name, ROWS, info)

    def _append(self, name: str, table: pa.Table, info: Mapping[str, object]) -> int:
        number = self.lake.version(name) + 1
        return Writer(self.lake, name).append(table, CommitTag(app="test", version=number, info=info)).version or 0


def rows(places: list[tuple[int, int]], late_by_ms: int | None = None) -> pa.Table:
    """Events at (partition, offset), one of each offset's tens."""
    return pa.Table.from_pylist(
        [
            {
                "sensor": "a",
                "read_at": EPOCH + timedelta(milliseconds=offset % 10),
                PARTITION: partition,
                OFFSET: offset,
                "_appended_at": datetime(2013, 1, 1, tzinfo=UTC),
                LATE_BY_MS: late_by_ms,
                REPLAYED: False,
            }
            for partition, offset in places
        ],
        schema=events_schema(TOPIC),
    )


@pytest.fixture
def log(lake: Lake) -> Log:
    return Log(lake)


def counts(found: Coverage) -> tuple[int, ...]:
    return (found.partition, found.start, found.end, found.events, found.quarantined)


def faults(found: Coverage) -> tuple[int, ...]:
    return (found.missing, found.repeated, found.astray)


def test_a_topic_that_was_never_read_is_covered_by_nothing(lake: Lake, log: Log) -> None:
    assert coverage(lake, TOPIC) == []


def test_every_offset_is_an_event_or_in_quarantine(lake: Lake, log: Log) -> None:
    log.ingest({0: 0, 1: 5}, {0: 3, 1: 6}, [(0, 0), (0, 2), (1, 5)], bad=[(0, 1)])
    log.ingest({0: 3, 1: 6}, {0: 4, 1: 6}, [(0, 3)])
    assert [counts(c) for c in coverage(lake, TOPIC)] == [(0, 0, 4, 3, 1), (1, 5, 6, 1, 0)]
    assert all(c.is_complete and not c.fault for c in coverage(lake, TOPIC))


def test_what_arrived_later_is_no_part_of_an_older_version(lake: Lake, log: Log) -> None:
    version = log.ingest({0: 0}, {0: 2}, [(0, 0)], bad=[(0, 1)])
    log.ingest({0: 2}, {0: 4}, [(0, 2)], bad=[(0, 3)])
    [found] = coverage(lake, TOPIC, version)
    assert (counts(found), faults(found)) == ((0, 0, 2, 1, 1), (0, 0, 0))


def test_a_lost_a_repeated_and_a_foreign_offset_are_found(lake: Lake, log: Log) -> None:
    log.ingest({0: 0, 1: 3, 2: 0}, {0: 4, 1: 5, 2: 2}, [(0, 0), (0, 3), (1, 3), (1, 4), (2, 0), (2, 1)], bad=[(0, 1)])
    log.quarantine([(1, 4)])
    log.add([(1, 2), (2, 2), (2, 7)])
    found = coverage(lake, TOPIC)
    assert [faults(c) for c in found] == [(1, 0, 0), (0, 1, 1), (0, 0, 2)]
    assert found[0].fault == "plant.readings, partition 0, [0, 4): 1 missing offsets"


def test_an_offset_that_is_known_to_be_lost_is_not_missing(lake: Lake, log: Log) -> None:
    log.ingest({0: 0, 1: 0}, {0: 9, 1: 4}, [(0, 0), (0, 4), (1, 0), (1, 1)], bad=[(0, 8)])
    lost_offsets.ensure(lake)
    lost = Gap(topic=TOPIC.full_name, partition=0, start=1, end=8, recorded_at=EPOCH, why="gone")
    lost_offsets.record(
        lake, [replace(lost, end=3), replace(lost, start=4), replace(lost, partition=1, start=3, end=7)]
    )
    lost_offsets.record(
        lake, [replace(lost, partition=1, start=0, log="another log"), replace(lost, topic="plant.doors")]
    )
    found = coverage(lake, TOPIC)
    # Of partition 0 the offset 3, of partition 1 the offset 2 is missing and not named; offset 4 is there after all.
    assert [(c.missing, c.lost) for c in found] == [(1, 5), (1, 1)]
    assert all(c.events + c.quarantined + c.missing + c.lost == c.records for c in found)


def test_an_offset_that_a_transaction_fills_is_not_missing(lake: Lake, log: Log) -> None:
    log.ingest({0: 0, 1: 0}, {0: 9, 1: 4}, [(0, 0), (0, 4), (1, 0), (1, 1)], bad=[(0, 8)])
    lost_offsets.ensure(lake)
    lost_offsets.record(lake, [Gap(topic=TOPIC.full_name, partition=0, start=1, end=3, recorded_at=EPOCH, why="gone")])
    transaction_offsets.ensure(lake)
    transaction_offsets.record(lake, TOPIC.full_name, "", {0: [(2, 6)], 1: [(3, 4)]})
    transaction_offsets.record(lake, TOPIC.full_name, "another log", {0: [(6, 8)]})
    # Of partition 0, 2 is lost and a marker at once, and 4 is there after all; 6 and 7 are explained by nothing.
    assert [(c.missing, c.lost, c.in_transactions) for c in coverage(lake, TOPIC)] == [(2, 2, 2), (1, 0, 1)]
    assert missing(lake, TOPIC) == {0: [(6, 8)], 1: [(2, 3)]}


def test_a_certificate_counts_what_went_in_and_what_went_out(lake: Lake, log: Log) -> None:
    version = log.ingest({0: 0}, {0: 12}, [(0, n) for n in range(11)], bad=[(0, 11)])
    log.ingest({0: 12}, {0: 14}, [(0, 12), (0, 13)])
    at = log.stream(HOURS, readings=version + 1)
    found = certify(lake, REGISTRY, HOURS)
    [topic] = found.topics
    assert (found.version, found.rows, found.fingerprint, found.inputs) == (at, 2, "f00d", {"plant.readings": version})
    # The event at offset 10 repeats the one at offset 0.
    assert (topic.records, topic.events, topic.quarantined, topic.duplicates) == (12, 11, 1, 1)
    assert found.is_complete


def test_a_certificate_of_an_older_version_says_what_was_in_by_then(lake: Lake, log: Log) -> None:
    first = log.stream(HOURS, readings=log.ingest({0: 0}, {0: 1}, [(0, 0)]) + 1)
    log.stream(HOURS, readings=log.ingest({0: 1}, {0: 5}, [(0, n) for n in range(1, 5)]) + 1)
    assert [t.records for t in certify(lake, REGISTRY, HOURS, first).topics] == [1]
    assert certify(lake, REGISTRY, HOURS, first).rows == 2
    assert [t.records for t in certify(lake, REGISTRY, HOURS).topics] == [5]


def test_a_certificate_goes_through_the_tables_between_to_the_log(lake: Lake, log: Log) -> None:
    middle = log.stream(HOURS, readings=log.ingest({0: 0}, {0: 1}, [(0, 0)]) + 1)
    log.stream(DAYS, hours=middle + 1)
    log.stream(HOURS, readings=log.ingest({0: 1}, {0: 5}, [(0, n) for n in range(1, 5)]) + 1)
    found = certify(lake, REGISTRY, DAYS)
    assert found.inputs == {"plant.hours": middle}
    assert [(t.topic, t.records) for t in found.topics] == [("plant.readings", 1)]


def test_of_two_ways_to_a_topic_the_one_that_read_less_counts(lake: Lake, log: Log) -> None:
    middle = log.stream(HOURS, readings=log.ingest({0: 0}, {0: 1}, [(0, 0)]) + 1)
    version = log.ingest({0: 1}, {0: 5}, [(0, n) for n in range(1, 5)])
    log.stream(BOTH, hours=middle + 1, readings=version + 1)
    assert [t.records for t in certify(lake, REGISTRY, BOTH).topics] == [1]


def test_a_gap_in_the_log_makes_a_certificate_worthless(lake: Lake, log: Log) -> None:
    log.stream(HOURS, readings=log.ingest({0: 0}, {0: 3}, [(0, 0), (0, 2)]) + 1)
    found = certify(lake, REGISTRY, HOURS)
    assert not found.is_complete
    assert found.faults == ["plant.readings, partition 0, [0, 3): 1 missing offsets"]


def test_a_table_that_no_stream_reports_has_no_certificate(lake: Lake, log: Log) -> None:
    log.ingest({0: 0}, {0: 1}, [(0, 0)])
    found = certify(lake, REGISTRY, DAYS)
    assert found.faults == ["plant.hours: no commit says how far it was read"]
    assert not found.is_complete


def test_a_commit_that_was_read_in_part_is_not_in_yet(lake: Lake, log: Log) -> None:
    version = log.ingest({0: 0}, {0: 3}, [(0, n) for n in range(3)])
    log.stream(HOURS, readings=version + 1, parts=[TOPIC.full_name])
    assert [t.records for t in certify(lake, REGISTRY, HOURS).topics] == [0]
    log.ingest({0: 3}, {0: 7}, [(0, n) for n in range(3, 7)])
    log.stream(HOURS, readings=version + 2, parts=[TOPIC.full_name])
    assert [t.records for t in certify(lake, REGISTRY, HOURS).topics] == [3]
    log.stream(HOURS, readings=version + 2)
    assert [t.records for t in certify(lake, REGISTRY, HOURS).topics] == [7]


def reconciled(lake: Lake, table: Table, events: int, *pending: Scope) -> None:
    """A reconcile of the table that has looked through this version of the events."""
    ledgers, name = Ledgers(lake), table.full_name
    ledgers.ensure()
    state = ReconcilePosition(
        consumed={TOPIC.full_name: events, name: lake.version(name)}, pending=dict.fromkeys(pending, 0)
    )
    ledgers.record_run(RunResult(table=name, cause="late", run=f"late-{events}-{len(pending)}"), state, "f00d")


def test_what_may_have_been_dropped_counts_after_a_reconcile(lake: Lake, log: Log) -> None:
    first = log.ingest({0: 0}, {0: 3}, [(0, n) for n in range(3)])
    second = log.ingest({0: 3}, {0: 5}, [(0, 3), (0, 4)], late_by_ms=HOURS.watermark_ms)
    log.ingest({0: 5}, {0: 6}, [(0, 5)], late_by_ms=HOURS.watermark_ms - 1)
    before = log.stream(HOURS, readings=second + 2)
    fault = "plant.hours may lack 2 late records of plant.readings that no reconcile has looked at"
    assert certify(lake, REGISTRY, HOURS).faults == [fault]
    reconciled(lake, HOURS, first)
    assert certify(lake, REGISTRY, HOURS).faults == [fault]
    at = log.stream(HOURS, readings=second + 2)
    reconciled(lake, HOURS, second)
    assert certify(lake, REGISTRY, HOURS, at).is_complete
    assert certify(lake, REGISTRY, HOURS, before).faults == [fault], "the reconcile came after that version"
    log.stream(DAYS, hours=before + 1)
    assert certify(lake, REGISTRY, DAYS).faults == [fault], "it was computed from that version"
    reconciled(lake, HOURS, second, Scope(("a",), None))
    assert certify(lake, REGISTRY, HOURS).faults == [
        "plant.hours may lack what was late for 1 groups of rows that are still open"
    ]


def test_what_is_late_and_left_out_by_declaration_is_counted_and_no_fault(lake: Lake, log: Log) -> None:
    version = log.ingest({0: 0}, {0: 2}, [(0, 0), (0, 1)], late_by_ms=HOURS.watermark_ms)
    log.stream(HOURS, readings=version + 1)
    drops = bound_as(replace(HOURS, late="drop"), "hours")
    found = certify(lake, REGISTRY, drops)
    assert (found.is_complete, [late.dropped for late in found.late]) == (True, [2])
