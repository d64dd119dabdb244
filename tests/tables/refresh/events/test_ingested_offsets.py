"""Ingested offsets are read from the events table alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.tables.declared import a_topic
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.infra.instants import EPOCH
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, PARTITION, REPLAYED
from twofold.tables.refresh.events.ingested_offsets import IngestedOffsets, read_ingested_offsets
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA, events_schema, heartbeat

TOPIC = a_topic()


@pytest.fixture
def events(lake: Lake) -> Writer:
    lake.ensure(TOPIC.full_name, events_schema(TOPIC), statistics=[OFFSET])
    lake.ensure(TOPIC.full_name + QUARANTINE, QUARANTINE_SCHEMA, statistics=[OFFSET])
    return Writer(lake, TOPIC.full_name)


def rows(*places: tuple[int, int, int], replayed: bool = False) -> pa.Table:
    """Events at (partition, offset), read so many milliseconds after 1970."""
    return pa.Table.from_pylist(
        [
            {
                "sensor": "a",
                "read_at": EPOCH + timedelta(milliseconds=ms),
                PARTITION: partition,
                OFFSET: offset,
                "_appended_at": datetime(2013, 1, 1, tzinfo=UTC),
                LATE_BY_MS: None,
                REPLAYED: replayed,
            }
            for partition, offset, ms in places
        ],
        schema=events_schema(TOPIC),
    )


def test_an_empty_table_has_no_frontier(lake: Lake, events: Writer) -> None:
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets()
    assert read_ingested_offsets(lake, TOPIC, quarantine=True) == IngestedOffsets()


def test_the_newest_commit_of_ingest_says_where_it_ends(lake: Lake, events: Writer) -> None:
    first = IngestedOffsets().after({0: (0, 2)}, 5_000)
    second = first.after({0: (2, 3), 1: (0, 4)}, 4_000)
    events.append(rows((0, 0, 5_000), (0, 1, 0)), CommitTag(app="ingest", version=first.number, info=first.info))
    events.append(rows((0, 2, 4_000)), CommitTag(app="ingest", version=second.number, info=second.info))
    events.append(rows((0, 1, 9_000), replayed=True), CommitTag(app="replay", version=1, info={"cause": "replay"}))
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets({0: 3, 1: 4}, {0: 2, 1: 0}, 5_000, number=2) == second


def test_a_commit_that_does_not_know_its_newest_time_asks_the_rows(lake: Lake, events: Writer) -> None:
    known = IngestedOffsets({0: 2}, {0: 0}, None)
    events.append(rows((0, 0, 5_000), (0, 1, 0)), CommitTag(app="ingest", version=2, info=known.info))
    events.append(rows((0, 0, 9_000), replayed=True), CommitTag(app="replay", version=1))
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets({0: 2}, {0: 0}, 5_000, number=2)


def test_micro_batches_of_rejected_records_alone_have_no_newest_time(lake: Lake, events: Writer) -> None:
    events.append(rows(), CommitTag(app="ingest", version=2, info=IngestedOffsets({0: 2}, {0: 0}, None).info))
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets({0: 2}, {0: 0}, None, number=2)


def test_without_such_a_commit_the_rows_decide(lake: Lake, events: Writer) -> None:
    events.append(rows((0, 6, -1), (0, 5, -2), (1, 2, -3)), CommitTag(app="restored", version=1))
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets({0: 7, 1: 3}, {0: 7, 1: 3}, -1)


def test_quarantine_has_a_frontier_of_its_own(lake: Lake, events: Writer) -> None:
    mark = IngestedOffsets({0: 9}, {0: 8}, None, number=9)
    Writer(lake, TOPIC.full_name + QUARANTINE).append(
        QUARANTINE_SCHEMA.empty_table(), CommitTag(app="ingest", version=9, info=mark.info)
    )
    assert read_ingested_offsets(lake, TOPIC, quarantine=True) == mark
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets()


def test_a_frontier_never_goes_back_in_time() -> None:
    start = IngestedOffsets({0: 5, 1: 5}, {0: 0}, 9)
    assert start.after({0: (5, 8)}, None) == IngestedOffsets({0: 8, 1: 5}, {0: 5}, 9, number=1)
    assert start.after({0: (3, 8), 1: (0, 4)}, None) == IngestedOffsets({0: 8, 1: 5}, {0: 5, 1: 5}, 9, number=1)
    assert start.after({1: (5, 6)}, None).starts == {0: 0, 1: 5}
    assert start.after({0: (5, 8)}, 4).newest_ms == 9
    assert IngestedOffsets().after({}, -4).newest_ms == -4


def test_offsets_are_before_the_frontier_or_beyond_it() -> None:
    mark, ranges = IngestedOffsets({0: 5, 1: 5, 2: 0}), {0: (3, 8), 1: (0, 5), 2: (0, 2), 3: (4, 6)}
    assert mark.within(ranges) == {0: (3, 5), 1: (0, 5)}
    assert mark.beyond(ranges) == {0: (5, 8), 2: (0, 2), 3: (4, 6)}


def test_a_restored_table_ends_where_its_rows_do_and_takes_new_ones(lake: Lake, events: Writer) -> None:
    first = IngestedOffsets().after({0: (0, 2)}, 5_000)
    second = first.after({0: (2, 3)}, 6_000)
    events.append(rows((0, 0, 5_000), (0, 1, 0)), CommitTag(app="ingest", version=first.number, info=first.info))
    events.append(rows((0, 2, 6_000)), CommitTag(app="ingest", version=second.number, info=second.info))
    lake.open(TOPIC.full_name).restore(1)

    restored = read_ingested_offsets(lake, TOPIC)
    assert (restored.ends, restored.newest_ms) == ({0: 2}, 5_000)

    again = restored.after({0: (2, 3)}, 6_000)
    stamp = CommitTag(app="ingest", version=again.number, info=again.info)
    assert events.append(rows((0, 2, 6_000)), stamp).inserted == 1
    assert events.append(rows((0, 2, 6_000)), stamp).skipped
    assert read_ingested_offsets(lake, TOPIC) == again


def test_a_table_restored_to_its_beginning_holds_nothing(lake: Lake, events: Writer) -> None:
    first = IngestedOffsets().after({0: (0, 2)}, 5_000)
    events.append(rows((0, 0, 5_000), (0, 1, 0)), CommitTag(app="ingest", version=first.number, info=first.info))
    lake.open(TOPIC.full_name).restore(0)

    assert read_ingested_offsets(lake, TOPIC).ends == {}


def test_a_heartbeat_moves_the_time_and_no_offset(lake: Lake, events: Writer) -> None:
    before = IngestedOffsets().after({0: (0, 2)}, 5_000)
    events.append(rows((0, 0, 5_000), (0, 1, 0)), CommitTag(app="ingest", version=before.number, info=before.info))
    after = before.moved(7_000)
    events.append(heartbeat(TOPIC, 7_000, 9_000), CommitTag(app="ingest", version=after.number, info=after.info))
    assert read_ingested_offsets(lake, TOPIC) == after
    assert (after.ends, after.newest_ms, after.number) == ({0: 2}, 7_000, 2)
    assert after.after({0: (2, 3)}, 6_000).newest_ms == 7_000


def test_rows_of_heartbeats_have_the_time_where_the_log_lacks_it(lake: Lake, events: Writer) -> None:
    events.append(rows((0, 0, 5_000)), CommitTag(app="other", version=1))
    events.append(heartbeat(TOPIC, 7_000, 9_000), CommitTag(app="other", version=2))
    assert read_ingested_offsets(lake, TOPIC) == IngestedOffsets({0: 1}, {0: 1}, 7_000)
