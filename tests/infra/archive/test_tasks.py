"""A read is cut into pieces that take about as long as each other."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from infra.archive import tasks
from infra.archive.read import Part
from infra.archive.tasks import grouped
from tests.infra.archive.logs import TOPIC, Batch, Record, archive_of, stored


@pytest.mark.parametrize(("segments", "groups"), [(0, []), (1, [1]), (3, [1, 1, 1]), (7, [2, 1, 2, 2]), (16, [4] * 4)])
def test_groups_for_four_tasks_end_together(tmp_path: Path, segments: int, groups: list[int]) -> None:
    assert [len(group) for group in grouped(_parts(tmp_path, segments), 4)] == groups


def test_groups_follow_each_other_and_are_as_small_as_a_task_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = _parts(tmp_path, 9)
    monkeypatch.setattr(tasks, "TASK_BYTES", 2 * parts[0].stop)
    groups = grouped(parts, 2)
    assert [part for group in groups for part in group] == parts
    assert [len(group) for group in groups] == [1, 2, 1, 2, 1, 2]


def _parts(tmp_path: Path, segments: int) -> list[Part]:
    logs = [
        stored([Batch(base=3 * n, records=[Record()] * 3).encode()], identity=UUID(int=n + 1)) for n in range(segments)
    ]
    return archive_of(tmp_path, logs).plan({TOPIC: {0: (0, 3 * segments)}}) if logs else []
