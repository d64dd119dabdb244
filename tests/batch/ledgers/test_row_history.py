"""A row's story names the archived segments that hold its records."""

from __future__ import annotations

from datetime import UTC, datetime

from batch.ledgers.row_history import Record, RowHistory, RowVersion, in_archive
from infra.archive.format.segment_store import Store
from infra.archive.read_plan import Archive
from infra.archive.segment_manifest import archived
from tests.infra.archive.archived_logs import TOPIC, TOPIC_ID
from tests.infra.archive.test_segment_manifest import segment


def test_a_record_is_reported_with_its_segment_once_that_is_archived() -> None:
    held = segment(100, 200, ((5, 100),))
    archive = Archive(Store("nowhere"), archived([held], {TOPIC: TOPIC_ID}))
    places = [(TOPIC, 0, 199), (TOPIC, 0, 200), (TOPIC, 1, 150), ("flights.flights", None, None)]
    records = [Record(source=source, partition=p, offset=offset) for source, p, offset in places]
    chapter = RowVersion(version=1, at=datetime(2013, 1, 1, tzinfo=UTC), change="update", by="late", records=records)
    told = in_archive(
        RowHistory(table="t", key={}, now=None, versions=[chapter], since=0, definition=""), archive
    ).versions[0]
    assert [record.segment for record in told.records] == [str(held), None, None, None]
    assert str(held).startswith(f"{TOPIC}-0/{100:020d}-")
