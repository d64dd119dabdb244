"""A range of time is the offsets that a consumer who seeks by time would read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.archive.offsets_by_time import between
from infra.errors import LogGap, NotArchived
from tests.infra.archive.archived_logs import NOON_MS, TOPIC, Batch, Record, Stored, archive_of, stored
from tests.infra.archive.random_logs import Log, random_logs


def test_a_time_between_records_and_one_on_a_record(tmp_path: Path) -> None:
    batches = [
        Batch(base=base, records=[Record(timestamp=NOON_MS + 1_000 * offset) for offset in range(base, base + 10)])
        for base in range(0, 1_000, 10)
    ]
    halves = [stored([batch.encode() for batch in half], index_every=200) for half in (batches[:40], batches[40:])]
    archive = archive_of(tmp_path, halves)

    assert between(archive, TOPIC, NOON_MS + 7_000, NOON_MS + 512_345) == {0: (7, 513)}
    assert between(archive, TOPIC, NOON_MS - 5, NOON_MS + 400_000) == {0: (0, 400)}
    assert between(archive, TOPIC, NOON_MS + 300_001, NOON_MS + 300_002) == {0: (301, 301)}


def test_a_time_that_the_archive_has_not_reached_names_the_frontier(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, [stored([Batch(base=0, records=[Record(timestamp=NOON_MS)] * 3).encode()])])

    assert between(archive, TOPIC, NOON_MS, NOON_MS) == {0: (0, 0)}
    with pytest.raises(NotArchived, match=f"up to offset 3, its frontier, and has no record of {NOON_MS + 1} ms"):
        between(archive, TOPIC, NOON_MS, NOON_MS + 1)


def test_times_on_either_side_of_a_hole_and_in_it(tmp_path: Path) -> None:
    def segment(base: int) -> Stored:
        records = [Record(timestamp=NOON_MS + 1_000 * offset) for offset in range(base, base + 10)]
        return stored([Batch(base=base, records=records).encode()])

    archive = archive_of(tmp_path, [segment(0), segment(50)])

    assert between(archive, TOPIC, NOON_MS + 2_000, NOON_MS + 55_000) == {0: (2, 55)}
    assert between(archive, TOPIC, NOON_MS + 51_000, NOON_MS + 55_000) == {0: (51, 55)}
    # The first record of that second or later was in the hole.
    missing = between(archive, TOPIC, NOON_MS + 20_000, NOON_MS + 55_000)
    assert missing == {0: (10, 55)}
    with pytest.raises(LogGap, match=r"no segment for \[10, 50\)"):
        archive.plan({TOPIC: missing})
    assert between(archive, TOPIC, NOON_MS + 3_000, NOON_MS + 20_000) == {0: (3, 50)}, "up to where records are newer"
    with pytest.raises(NotArchived, match="up to offset 60, its frontier"):
        between(archive, TOPIC, NOON_MS, NOON_MS + 60_000)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random_logs(), st.integers(NOON_MS - 10**6, NOON_MS + 10**6))
def test_in_any_log_the_first_visible_record_not_before_a_time_is_found(log: Log, time_ms: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        archive = archive_of(Path(root), log.segments)
        expected = next((row[2] for row in log.rows if row[3] >= time_ms), None)
        if expected is None:
            with pytest.raises(NotArchived):
                between(archive, TOPIC, time_ms, time_ms)
        else:
            assert between(archive, TOPIC, time_ms, time_ms) == {0: (expected, expected)}
