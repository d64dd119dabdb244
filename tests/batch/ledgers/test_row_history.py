"""A row's story: when it was closed, and the archived segments that hold its records."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from packages.twofold_archive.tests.archived_logs import TOPIC, TOPIC_ID
from packages.twofold_archive.tests.test_segment_manifest import segment
from tests.tables.declared import a_table
from twofold.batch.ledgers.row_history import Record, RowHistory, RowVersion, in_archive, read_history
from twofold.infra.archive.platform_archive import ArchiveFiles, PlatformArchive
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold_archive.format.segment_store import Store
from twofold_archive.segment_manifest import archived


def test_a_record_is_reported_with_its_segment_once_that_is_archived() -> None:
    held = segment(100, 200, ((5, 100),))
    archive = PlatformArchive(Store(ArchiveFiles("nowhere")), archived([held], {TOPIC: TOPIC_ID}))
    places = [(TOPIC, 0, 199), (TOPIC, 0, 200), (TOPIC, 1, 150), ("flights.flights", None, None)]
    records = [Record(source=source, partition=p, offset=offset) for source, p, offset in places]
    chapter = RowVersion(version=1, at=datetime(2013, 1, 1, tzinfo=UTC), change="update", by="late", records=records)
    told = in_archive(
        RowHistory(table="t", key={}, now=None, versions=[chapter], since=0, definition=""), archive
    ).versions[0]
    assert [record.segment for record in told.records] == [str(held), None, None, None]
    assert str(held).startswith(f"{TOPIC}-0/{100:020d}-")


CLOSING = datetime(2013, 1, 1, 11, tzinfo=UTC)


def closing_history(lake: Lake, *watermarks_h: float | None, by: str = "stream", first_at: float = 10.5) -> RowHistory:
    """The history of a row that closes at 11:00, after a commit about it and commits about another row.

    Args:
        watermarks_h: hour of the watermark of each of the others' commits.
    """
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("sensor", pa.string()), ("hour", at), ("closes_at", at), ("n", pa.int64())])
    lake.ensure("plant.hours", schema, statistics=["hour"])
    writer, ten = Writer(lake, "plant.hours"), datetime(2013, 1, 1, 10, tzinfo=UTC)
    for number, hour in enumerate((first_at, *watermarks_h), 1):
        watermark_ms = None if hour is None else int(hour * 3_600_000) + 1_356_998_400_000  # since 2013 began
        sensor = "a" if number == 1 else "b"
        row = {"sensor": sensor, "hour": ten, "closes_at": CLOSING, "n": number}
        info = {"cause": by if number == 1 else "stream", "batch": number, "watermark_ms": watermark_ms}
        writer.append(pa.Table.from_pylist([row], schema=schema), CommitTag(app="test", version=number, info=info))
    return read_history(lake, a_table(), {"sensor": "a", "hour": ten})


def test_the_first_watermark_at_the_end_of_a_row_closes_it(lake: Lake) -> None:
    history = closing_history(lake, None, 10.9, 11.0, 11.5)
    assert [version.watermark for version in history.versions] == [datetime(2013, 1, 1, 10, 30, tzinfo=UTC)]
    assert history.closes_at == CLOSING
    assert history.closed is not None
    assert (history.closed.version, history.closed.watermark) == (4, CLOSING)
    (commit,) = lake.commits("plant.hours", 3, 4)
    assert history.closed.at == datetime.fromtimestamp(commit.timestamp_ms / 1_000, UTC)


def test_a_row_that_is_written_once_it_is_final_is_closed_by_that(lake: Lake) -> None:
    closed = closing_history(lake, 12.0, first_at=11.0).closed
    assert closed is not None
    assert closed.version == 1


def test_a_row_that_is_open_or_of_no_stream_has_no_closing(lake: Lake, tmp_path: Path) -> None:
    assert closing_history(lake, 10.9, None).closed is None
    assert closing_history(Lake(Settings(home=tmp_path / "other")), 12.0, by="late").closed is None
