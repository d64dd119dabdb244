"""A table that is kept open is never older than its log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.short_history import trim_to_the_newest
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.open_table import OpenTable

NAME = "plant.readings"


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def writer(lake: Lake) -> Writer:
    lake.ensure(NAME, pa.schema([("n", pa.int64())]), statistics=[])
    return Writer(lake, NAME)


def commit(writer: Writer, number: int) -> None:
    writer.append(pa.table({"n": [number]}), CommitTag(app="a", version=number))


def test_it_asks_delta_only_where_others_have_committed(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, asked = OpenTable(lake, NAME), list[int]()
    update = DeltaTable.update_incremental
    monkeypatch.setattr(DeltaTable, "update_incremental", lambda self: (asked.append(self.version()), update(self)))
    assert [table.newest().version() for _ in range(3)] == [0, 0, 0]
    commit(writer, 1)
    commit(writer, 2)
    asked.clear()
    assert [table.newest().version() for _ in range(3)] == [2, 2, 2]
    assert asked == [0]


def test_after_a_minute_it_sees_what_follows_commits_that_were_cleaned_up(lake: Lake, writer: Writer) -> None:
    clock = Clock()
    table = OpenTable(lake, NAME, clock=clock)
    assert table.newest().version() == 0
    for number in range(1, 4):
        commit(writer, number)
    lake.open(NAME).create_checkpoint()
    for number in range(3):
        (Path(lake.uri(NAME)) / "_delta_log" / f"{number:020d}.json").unlink()
    clock.now += 61
    assert table.newest().version() == 3


def test_what_it_reads_of_old_commits_is_there_after_a_trim(lake: Lake, writer: Writer) -> None:
    table = OpenTable(lake, NAME)
    for number in range(1, 4):
        commit(writer, number)
    assert table.newest().version() == 3
    trim_to_the_newest(lake, NAME)
    assert table.newest().transaction_version("of nobody") is None


def test_it_goes_on_from_a_checkpoint_that_it_wrote(lake: Lake, writer: Writer) -> None:
    table = OpenTable(lake, NAME)
    commit(writer, 1)
    table.checkpoint()
    commit(writer, 2)
    assert sorted(pa.table(table.newest().scan())["n"].to_pylist()) == [1, 2]
