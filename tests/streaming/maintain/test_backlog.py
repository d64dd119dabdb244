"""The backlog of a table is read from the Delta logs, each commit once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.plant import DAYS_FILE, plant
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.logged_commit import LoggedCommit
from twofold.streaming.maintain.backlog import Backlog
from twofold.tables.declare.registry import Registry
from twofold.tables.refresh.streaming_checkpoint import Checkpoint, delta_offset

READINGS, HOURS, DAYS, NUMBERED = "plant.readings", "plant.hours", "plant.days", "plant.numbered"


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """`days` reads `hours`, a stream over `readings`."""
    return plant(tmp_path / "plant", days=DAYS_FILE)


@pytest.fixture
def backlog(lake: Lake, registry: Registry, clock: Clock) -> Backlog:
    for name in (READINGS, HOURS, DAYS):
        lake.ensure(name, pa.schema([("sensor", pa.string())]), statistics=[])
    return Backlog(lake, registry, clock=clock)


def commit(lake: Lake, name: str, rows: int) -> None:
    number = lake.version(name) + 1
    Writer(lake, name).append(pa.table({"sensor": ["a"] * rows}), CommitTag(app="ingest", version=number))


def stream_has_read(lake: Lake, registry: Registry, version: int) -> None:
    checkpoint = Checkpoint.of_table(lake.settings, registry.find_table(HOURS))
    for folder, text in (
        ("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(delta_offset("id", version))}'),
        ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        (checkpoint.path / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint.path / folder / "0").write_text(text)


def test_rows_of_the_commits_from_a_version_on_are_counted(lake: Lake, backlog: Backlog) -> None:
    assert (backlog.next_version(READINGS), backlog.rows(READINGS, 0)) == (1, 0)
    commit(lake, READINGS, 3)
    commit(lake, READINGS, 5)
    assert backlog.next_version(READINGS) == 3
    assert [backlog.rows(READINGS, start) for start in (0, 1, 2, 3)] == [8, 8, 5, 0]


def test_of_a_merge_only_the_rows_that_it_changed_are_counted(lake: Lake, backlog: Backlog) -> None:
    lake.ensure(NUMBERED, pa.schema([("k", pa.int64()), ("n", pa.int64())]), statistics=["k"])
    backlog.next_version(NUMBERED)
    writer, start = Writer(lake, NUMBERED), lake.version(NUMBERED) + 1
    for number, values in enumerate(([0] * 100, [0] * 98 + [1] * 4, [2] * 102)):
        rows = pa.table({"k": list(range(len(values))), "n": values})
        writer.upsert(rows, ["k"], CommitTag(app="merge", version=number))
    assert [backlog.rows(NUMBERED, start + number) for number in range(3)] == [100 + 4 + 102, 4 + 102, 102]
    changes = pa.table({"k": [7], "n": [2], "_change": ["delete"], "_before_n": [2]})
    writer.apply(changes, ["k"], CommitTag(app="merge", version=3))
    assert backlog.rows(NUMBERED, start + 3) == 1


def test_of_commits_before_the_first_look_the_rows_are_unknown(lake: Lake, backlog: Backlog) -> None:
    commit(lake, READINGS, 3)
    assert [backlog.rows(READINGS, start) for start in (1, 2)] == [math.inf, 0]
    commit(lake, READINGS, 5)
    assert [backlog.rows(READINGS, start) for start in (1, 2)] == [math.inf, 5]


def test_what_arrived_lately_and_how_long_ago(lake: Lake, backlog: Backlog, clock: Clock) -> None:
    backlog.next_version(READINGS)
    commit(lake, READINGS, 3)
    assert (backlog.arrived(READINGS, 2), backlog.quiet_s(READINGS)) == (3, 0)
    clock.now += 1.5
    commit(lake, READINGS, 5)
    assert backlog.arrived(READINGS, 2) == 8
    clock.now += 1.5
    assert (backlog.arrived(READINGS, 2), backlog.quiet_s(READINGS)) == (5, 1.5)


def test_rows_wait_before_a_stream_until_its_micro_batch_has_ended(
    lake: Lake, backlog: Backlog, registry: Registry
) -> None:
    hours, days = registry.find_table(HOURS), registry.find_table(DAYS)
    assert backlog.before_streams(days) == 0
    commit(lake, READINGS, 3)
    assert (backlog.before_streams(days), backlog.before_streams(hours)) == (3, 0)
    stream_has_read(lake, registry, 2)
    assert backlog.before_streams(days) == 0


def test_each_commit_is_read_once(lake: Lake, backlog: Backlog, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    commits = Lake.commits

    def counted(self: Lake, name: str, after: int, through: int) -> Iterator[LoggedCommit]:
        for one in commits(self, name, after, through):
            read.append(one.version)
            yield one

    backlog.next_version(READINGS)
    monkeypatch.setattr(Lake, "commits", counted)
    commit(lake, READINGS, 1)
    read.clear()
    for _ in range(3):
        backlog.rows(READINGS, 0)
        backlog.quiet_s(READINGS)
    assert read == [1]
