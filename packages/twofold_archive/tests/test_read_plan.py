"""What an archive reports before anything of it is read."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from packages.twofold_archive.tests.archived_logs import TOPIC, Batch, Record, archive_of, stored
from twofold_archive.read_plan import ArchivedBounds


def batch(base: int, records: int, producer: int = -1) -> bytes:
    made = Batch(base=base, records=[Record()] * records, producer=producer, is_transactional=producer >= 0)
    return made.encode()


def test_what_is_behind_a_hole_is_a_run_of_its_own(tmp_path: Path) -> None:
    segments = [
        stored([batch(10, 5)], identity=UUID(int=1)),
        stored([batch(15, 5)], identity=UUID(int=2)),
        stored([batch(30, 4), batch(34, 6, producer=7)], identity=UUID(int=3), unfinished=[34]),
    ]
    archive = archive_of(tmp_path, segments)
    # Whether the transaction that began at 34 is visible, its segment does not tell.
    assert archive.runs(TOPIC) == {0: [ArchivedBounds(start=10, end=20), ArchivedBounds(start=30, end=34)]}
    assert archive.bounds(TOPIC) == {0: ArchivedBounds(start=10, end=20)}
    assert archive.runs("another") == {}


def test_the_size_of_a_topic_counts_each_segment_once(tmp_path: Path) -> None:
    segments = [stored([batch(n, 5)], identity=UUID(int=n + 1)) for n in (0, 5)]
    archive = archive_of(tmp_path, segments)
    assert archive.size(TOPIC) == sum(len(one.files["log"]) for one in segments)
    assert archive.size("another") == 0
