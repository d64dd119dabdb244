"""A read is cut into pieces that take about as long as each other."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from packages.twofold_archive.tests.archived_logs import TOPIC, Batch, Record, archive_of, stored
from twofold_archive import read_tasks
from twofold_archive.read_tasks import fine, grouped
from twofold_archive.segment_reader import Part, read_all


@pytest.mark.parametrize(("segments", "groups"), [(0, []), (1, [1]), (3, [1, 1, 1]), (7, [2, 1, 2, 2]), (16, [4] * 4)])
def test_groups_for_four_tasks_end_together(tmp_path: Path, segments: int, groups: list[int]) -> None:
    assert [len(group) for group in grouped(_parts(tmp_path, segments), 4)] == groups


def test_groups_follow_each_other_and_are_as_small_as_a_task_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = _parts(tmp_path, 9)
    monkeypatch.setattr(read_tasks, "TASK_BYTES", 2 * parts[0].stop)
    groups = grouped(parts, 2)
    assert [part for group in groups for part in group] == parts
    assert [len(group) for group in groups] == [1, 2, 1, 2, 1, 2]


def test_few_large_segments_are_cut_so_that_tasks_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_tasks, "LEAST_PART_BYTES", 1)
    logs = [
        stored(
            [Batch(base=600 * n + 3 * m, records=[Record()] * 3).encode() for m in range(200)],
            identity=UUID(int=n + 1),
            index_every=0,
        )
        for n in range(6)
    ]
    archive = archive_of(tmp_path, logs)
    ranges = {TOPIC: {0: (0, 3_600)}}

    groups = grouped(fine(archive, ranges, 4), 4)
    sizes = [sum(part.stop - part.position for part in group) for group in groups]
    rows = [batch for group in groups for batch in read_all(group, archive.store, ["offset"])]

    assert [len(group) for group in grouped(archive.plan(ranges), 4)] == [1, 2, 1, 2]
    assert max(sizes) <= 1.25 * min(sizes)
    assert [offset for batch in rows for offset in batch["offset"].to_pylist()] == list(range(3_600))


def test_many_segments_are_read_as_they_are(tmp_path: Path) -> None:
    logs = [stored([Batch(base=n, records=[Record()]).encode()], identity=UUID(int=n + 1)) for n in range(40)]
    archive = archive_of(tmp_path, logs)

    assert fine(archive, {TOPIC: {0: (0, 40)}}, 4) == archive.plan({TOPIC: {0: (0, 40)}})


def _parts(tmp_path: Path, segments: int) -> list[Part]:
    logs = [
        stored([Batch(base=3 * n, records=[Record()] * 3).encode()], identity=UUID(int=n + 1)) for n in range(segments)
    ]
    return archive_of(tmp_path, logs).plan({TOPIC: {0: (0, 3 * segments)}}) if logs else []
