"""Rows of archived segments are those that kafka-python's own reader gives."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packages.twofold_archive.tests.archived_logs import (
    ABORT,
    COMMIT,
    LZ4,
    NONE,
    NOON_MS,
    TOPIC,
    ZSTD,
    Batch,
    Record,
    archive_of,
    marker,
    seal,
    stored,
)
from packages.twofold_archive.tests.random_logs import Log, Row, random_logs, rows_of
from twofold_archive.format.archive_errors import BadArgument, CorruptSegment, LogGap, NotArchived
from twofold_archive.format.record_columns import SCHEMA
from twofold_archive.read_plan import Archive
from twofold_archive.segment_reader import read

ALL = tuple(SCHEMA.names)


def table(archive: Archive, start: int, end: int, columns: tuple[str, ...] = ALL) -> pa.Table:
    parts = archive.plan({TOPIC: {0: (start, end)}})
    batches = [batch for part in parts for batch in read(part, archive.store, columns)]
    return pa.Table.from_batches(batches, pa.schema([SCHEMA.field(name) for name in columns]))


def rows(archive: Archive, start: int, end: int) -> list[Row]:
    """As kafka-python gives them; the topic and the partition are always the same."""
    found = table(archive, start, end).to_pylist()
    assert all((row["topic"], row["partition"]) == (TOPIC, 0) for row in found)
    return [
        (
            row["key"],
            row["value"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in found
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_logs(), st.data())
def test_a_random_log_is_read_as_a_consumer_of_committed_records_reads_it(log: Log, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        archive = archive_of(Path(root), log.segments, split_bytes=data.draw(st.sampled_from([1, 300, 1 << 20])))
        first = log.segments[0].segment.start
        assert archive.bounds(TOPIC)[0].end == log.frontier
        assert rows(archive, first, log.frontier) == log.rows
        start = data.draw(st.integers(first, log.frontier))
        end = data.draw(st.integers(start, log.frontier))
        assert rows(archive, start, end) == [row for row in log.rows if start <= row[2] < end]


@pytest.mark.parametrize("codec", range(NONE, ZSTD + 1))
def test_every_codec_is_read(tmp_path: Path, codec: int) -> None:
    records = [Record(key=b"%d" % i, value=b"some text of a record, " * (i % 9)) for i in range(2_000)]
    batches = [
        Batch(base=base, records=records[base : base + 500], codec=codec).encode() for base in range(0, 2_000, 500)
    ]

    found = rows(archive_of(tmp_path, [stored(batches)]), 0, 2_000)

    assert found == [row for batch in batches for row in rows_of(batch)]
    assert len(found) == 2_000


def test_the_schema_is_that_of_the_spark_kafka_source(tmp_path: Path) -> None:
    record = Record(key=b"k", value=None, timestamp=NOON_MS, headers=[("h", b"1"), ("h", None)])
    archive = archive_of(tmp_path, [stored([Batch(base=3, records=[record, Record()]).encode()])])

    assert table(archive, 3, 5).to_pylist() == [
        {
            "key": b"k",
            "value": None,
            "topic": TOPIC,
            "partition": 0,
            "offset": 3,
            "timestamp": datetime(2013, 1, 1, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        {
            "key": None,
            "value": b"v",
            "topic": TOPIC,
            "partition": 0,
            "offset": 4,
            "timestamp": datetime(2013, 1, 1, tzinfo=UTC),
            "timestampType": 0,
            "headers": None,
        },
    ]


def test_only_the_columns_that_are_asked_for_are_made(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, [stored([Batch(base=0, records=[Record(headers=[("h", b"")])]).encode()])])

    assert table(archive, 0, 1, ("offset", "key")).to_pydict() == {"offset": [0], "key": [None]}
    with pytest.raises(BadArgument, match="no column valeu"):
        table(archive, 0, 1, ("valeu",))


def test_a_transaction_that_is_aborted_in_a_later_segment_is_invisible(tmp_path: Path) -> None:
    record = [Record()]
    first = stored([Batch(base=0, records=record, producer=9, is_transactional=True).encode()], unfinished=[0])
    second = stored(
        [
            Batch(base=1, records=record).encode(),
            marker(2, 9, ABORT),
            Batch(base=3, records=record, producer=9, is_transactional=True).encode(),
            marker(4, 9, COMMIT),
        ],
        aborted=[(9, 0, 2)],
    )

    archive = archive_of(tmp_path, [first, second])

    assert table(archive, 0, 5)["offset"].to_pylist() == [1, 3]
    assert table(archive, 0, 1)["offset"].to_pylist() == []


def test_the_frontier_is_before_an_unfinished_archived_transaction(tmp_path: Path) -> None:
    batches = [
        Batch(base=0, records=[Record()]).encode(),
        Batch(base=1, records=[Record()], producer=9, is_transactional=True).encode(),
        Batch(base=2, records=[Record()]).encode(),
    ]
    archive = archive_of(tmp_path, [stored(batches, unfinished=[1])])

    assert table(archive, 0, 1)["offset"].to_pylist() == [0]
    with pytest.raises(NotArchived, match=r"\[0, 3\) are asked for, and the archive reaches up to 1, its frontier"):
        archive.plan({TOPIC: {0: (0, 3)}})


def test_gaps_of_compaction_are_refused_unless_expected(tmp_path: Path) -> None:
    batches = [
        Batch(base=0, records=[Record(), Record()], deltas=[1, 4], last_delta=6).encode(),
        Batch(base=9, records=[], last_delta=2).encode(),
        Batch(base=20, records=[Record()], codec=LZ4).encode(),
    ]

    compacted = archive_of(tmp_path, [stored(batches)], compacted=True)

    assert table(compacted, 0, 21)["offset"].to_pylist() == [1, 4, 20]
    assert table(compacted, 2, 20)["offset"].to_pylist() == [4]
    with pytest.raises(CorruptSegment, match="batch at offset 0, byte 0: offsets before it or in it are missing"):
        table(archive_of(tmp_path, [stored(batches)]), 0, 21)


def test_offsets_before_the_archive_and_holes_in_it_are_named(tmp_path: Path) -> None:
    segments = [stored([Batch(base=base, records=[Record()] * 5).encode()]) for base in (10, 20)]
    archive = archive_of(tmp_path, segments)

    assert table(archive, 20, 25)["offset"].to_pylist() == [20, 21, 22, 23, 24]
    with pytest.raises(LogGap, match="begins at 10"):
        archive.plan({TOPIC: {0: (0, 12)}})
    with pytest.raises(LogGap, match=r"no segment for \[15, 20\)"):
        archive.plan({TOPIC: {0: (12, 25)}})
    with pytest.raises(NotArchived, match="up to 25, its frontier"):
        archive.plan({TOPIC: {0: (30, 31)}})
    with pytest.raises(NotArchived, match="has nothing of the partition yet"):
        archive.plan({TOPIC: {1: (0, 1)}})
    with pytest.raises(BadArgument, match="is no range of offsets"):
        archive.plan({TOPIC: {0: (12, 11)}})


def test_a_segment_of_more_than_a_window_is_read_by_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [Batch(base=base, records=[Record(value=b"z" * 700)] * 3).encode() for base in range(0, 90, 3)]
    monkeypatch.setattr("twofold_archive.segment_reader.WINDOW_BYTES", 1_000)
    archive = archive_of(tmp_path, [stored(batches)])

    assert table(archive, 0, 90)["offset"].to_pylist() == list(range(90))
    assert table(archive, 31, 33)["offset"].to_pylist() == [31, 32]


def test_reading_a_little_of_a_segment_reads_few_of_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [Batch(base=base, records=[Record(value=b"z" * 100)] * 10).encode() for base in range(0, 10_000, 10)]
    archive = archive_of(tmp_path, [stored(batches)])
    taken = []
    read_bytes = type(archive.store).read

    def counted(store: object, *args: object, **kwargs: object) -> bytes:
        taken.append(read_bytes(store, *args, **kwargs))  # type: ignore[arg-type]
        return taken[-1]

    monkeypatch.setattr(type(archive.store), "read", counted)
    assert table(archive, 5_000, 5_050)["offset"].to_pylist() == list(range(5_000, 5_050))

    # 0.5 % of the offsets, an interval of the index to both sides, and the index itself.
    assert sum(map(len, taken)) < 0.02 * archive.partitions[TOPIC][0].pieces[0].segment.size


def test_a_name_of_a_header_that_is_no_text_is_made_one(tmp_path: Path) -> None:
    good = bytearray(Batch(base=0, records=[Record(headers=[("hh", b"1")])]).encode())
    good[good.index(b"hh") : good.index(b"hh") + 2] = b"\xff\xfe"
    archive = archive_of(tmp_path, [stored([seal(good)])])

    assert table(archive, 0, 1)["headers"].to_pylist() == [[{"key": "\ufffd\ufffd", "value": b"1"}]]
