"""A table that is written for ever has its rows, the history that its readers need, and little else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.short_history import NOTHING
from twofold.infra.delta import delta_writer, trim
from twofold.infra.delta.change_feed import changed_rows
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.history import Hold
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.table_copy import copy_table
from twofold.infra.delta.trim import Limits, Seen, Trim, next_floor
from twofold.infra.errors import ChangesGone, WriteConflict
from twofold.infra.project.settings import Settings

NAME = "plant.hours"
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
NOW_MS = 1_800_000_000_000
IDS = 50


def rows(value: int, ids: Sequence[int] = range(IDS)) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)}, schema=SCHEMA)


def stored(lake: Lake) -> list[tuple[int, int]]:
    return sorted((row["id"], row["value"]) for row in pa.table(lake.open(NAME).scan()).to_pylist())


@pytest.fixture
def writer(lake: Lake) -> Writer:
    lake.ensure(NAME, SCHEMA, statistics=["id"])
    return Writer(lake, NAME)


def revise(writer: Writer, *numbers: int) -> None:
    for number in numbers:
        tag = CommitTag(app="test", version=number, info={"ends": {"0": number}, "starts": {str(number % 3): number}})
        writer.upsert(rows(number), ["id"], tag)


def files(lake: Lake, pattern: str = "*.parquet") -> set[str]:
    root = Path(lake.uri(NAME))
    return {str(file.relative_to(root)) for file in root.glob(pattern)}


def trimmed(lake: Lake, limits: Limits = NOTHING) -> trim.Trimmed:
    return Trim(lake, NAME, limits).now()


def test_a_table_without_readers_keeps_its_newest_rows_alone(lake: Lake, writer: Writer) -> None:
    revise(writer, *range(1, 46))
    before = stored(lake)
    found = trimmed(lake)
    assert (found.files, found.bytes > 0, found.commits) == (44 + 39, True, 40)
    assert len(files(lake)) == 1
    assert stored(lake) == before
    assert not trimmed(lake).files
    revise(writer, 46)
    assert stored(lake) == [(id, 46) for id in range(IDS)]


def test_what_a_stream_has_not_read_can_be_read(lake: Lake, writer: Writer) -> None:
    revise(writer, *range(1, 30))
    lake.history(NAME).note("stream", 25)
    revise(writer, *range(30, 60))
    trimmed(lake)
    changed = changed_rows(lake, NAME, 24, 59, ["value"])
    assert set(changed["value"].to_pylist()) == set(range(24, 60))
    with pytest.raises(ChangesGone):
        changed_rows(lake, NAME, 3, 59, ["value"])


def test_appended_rows_that_moved_are_still_what_their_commit_changed(lake: Lake, writer: Writer) -> None:
    for number in range(1, 31):
        writer.append(rows(number, [number]), CommitTag(app="test", version=number))
    lake.history(NAME).note("stream", 25)
    lake.open(NAME).optimize.compact()
    lake.open(NAME).create_checkpoint()
    assert trimmed(lake).files == 19
    assert sorted(changed_rows(lake, NAME, 24, 31, ["value"])["value"].to_pylist()) == list(range(25, 31))
    lake.history(NAME).end("stream")
    assert trimmed(lake).files == 11
    assert stored(lake) == [(number, number) for number in range(1, 31)]


def test_a_version_that_a_process_reads_is_there_as_it_was(lake: Lake, writer: Writer) -> None:
    revise(writer, *range(1, 30))
    lake.history(NAME).keep_while_running(29)
    revise(writer, *range(30, 60))
    trimmed(lake)
    assert pa.table(lake.open(NAME, 29).scan())["value"].to_pylist() == [29] * IDS
    hold = next(Path(lake.uri(NAME), "_history").glob("process*"))
    hold.write_text(hold.read_text().replace('"pid": ', '"pid": 99999999'))
    trimmed(lake)
    assert len(files(lake)) == 1


def test_what_the_newest_commit_does_not_repeat_outlives_its_commit(lake: Lake, writer: Writer) -> None:
    revise(writer, *range(1, 30))
    for number in range(1, 60):
        writer.append(rows(0, [100 + number]), CommitTag(app="other", version=number, info={"cause": "test"}))
    trimmed(lake)
    assert not lake.has_version(NAME, 29)
    assert (lake.newest_info(NAME, "ends") or {})["ends"] == {"0": 29}
    assert lake.newest_info(NAME, "ends", at=40) is None, "what that version had is unknown"
    assert lake.history(NAME).floor().starts == {"0": 3, "1": 1, "2": 2}
    copy = Lake(Settings(home=Path(lake.settings.home, "copy")))
    copy_table(lake, copy, NAME, lake.version(NAME))
    assert (copy.newest_info(NAME, "ends") or {})["ends"] == {"0": 29}


def test_a_writer_that_slept_beyond_the_history_loses_no_row(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    revise(writer, *range(1, 11))
    slept, append = Writer(lake, NAME), delta_writer._append_arrow
    sleeps = iter([True])

    def late(*put: Any) -> None:
        """The process is stopped between its look at the table and its commit."""
        if next(sleeps, False):
            revise(writer, *range(11, 60))
            trimmed(lake)
        append(*put)

    monkeypatch.setattr(delta_writer, "_append_arrow", late)
    assert slept.append(rows(7, [1_000]), CommitTag(app="slept", version=1)).inserted == 1
    assert stored(lake) == [*((id, 59) for id in range(IDS)), (1_000, 7)]


def test_a_commit_into_a_hole_of_the_log_is_no_commit(lake: Lake, writer: Writer) -> None:
    """It was stopped within the engine, which then makes the file that it had found missing."""
    revise(writer, *range(1, 60))
    tag, slept = CommitTag(app="slept", version=1), Writer(lake, NAME)
    trimmed(lake)
    info = {"commitInfo": {"timestamp": 0, "userMetadata": tag.metadata(slept._id)}}
    lines = [info, {"txn": {"appId": "slept", "version": 1}}]
    hole = Path(lake.uri(NAME), "_delta_log", f"{11:020d}.json")
    hole.write_text("\n".join(map(json.dumps, lines)))
    revise(writer, *range(60, 90))
    trimmed(lake)
    assert not hole.exists(), "its writer was killed before it removed it"
    hole.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(WriteConflict, match="version 11 was gone"):
        slept._written(tag, 10)
    assert not hole.exists()


@pytest.mark.parametrize("after", [0, 1, 40, 90, 120])
def test_a_trim_that_is_killed_is_ended_by_the_next(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    revise(writer, *range(1, 46))
    left = iter(range(after))
    unlinked = trim._unlinked

    def dies(path: Path) -> bool:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return unlinked(path)

    with monkeypatch.context() as killed:
        killed.setattr(trim, "_unlinked", dies)
        with pytest.raises(KeyboardInterrupt):
            trimmed(lake)
    assert stored(lake) == [(id, 45) for id in range(IDS)]
    revise(writer, 46)
    trimmed(lake)
    assert stored(lake) == [(id, 46) for id in range(IDS)]
    assert len(files(lake)) == 1
    assert not lake.has_version(NAME, 39)


def test_a_busy_history_ends_by_bytes_but_keeps_its_newest_minutes() -> None:
    seen = [commit(number, NOW_MS - 30_000 * (100 - number), replaced=1 << 28) for number in range(101)]
    assert next_floor(seen, [], Limits(), 0, NOW_MS) == (0, 81)
    assert next_floor(seen, [], Limits(least_ms=0), 0, NOW_MS) == (0, 96)
    assert next_floor(seen, [], Limits(), 1 << 33, NOW_MS) == (0, 36)


def commit(version: int, at_ms: int, replaced: int = 0) -> Seen:
    return Seen(version=version, at_ms=at_ms, said=None, replaced={"x": replaced}, feed=[], also_feed=[])


@given(
    ages=st.lists(st.integers(0, 10 * 24 * 3_600_000), min_size=1, max_size=40),
    holds=st.lists(st.builds(Hold, version=st.integers(-1, 45), rows=st.booleans()), max_size=4),
    sizes=st.integers(0, 1 << 30),
    first=st.integers(0, 3),
)
def test_a_floor_is_below_each_hold_and_what_is_young(
    ages: list[int], holds: list[Hold], sizes: int, first: int
) -> None:
    """Clocks of writers go back, too: `ages` are in no order."""
    seen = [commit(first + n, NOW_MS - age, sizes) for n, age in enumerate(ages)]
    limits = Limits()
    changes, kept = next_floor(seen, holds, limits, 0, NOW_MS)
    young = [one.version for one in seen if one.at_ms > NOW_MS - limits.least_ms]
    assert changes <= kept <= seen[-1].version
    assert kept <= min(young, default=seen[-1].version)
    held = next((one.version for one in seen if one.at_ms > NOW_MS - limits.held_ms), seen[-1].version)
    for hold in holds:
        assert changes <= max(hold.version, held)
        assert kept <= max(hold.version, held) or not hold.rows


def test_properties_of_a_table_that_is_there_are_changed_once(lake: Lake, writer: Writer) -> None:
    lake.open(NAME).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    revise(writer, 1)
    trimmed(lake)
    version = lake.version(NAME)
    trimmed(lake)
    assert lake.version(NAME) == version
    assert lake.open(NAME).metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 1 hours"


def test_a_table_that_is_made_again_has_a_history_of_its_own(lake: Lake, writer: Writer) -> None:
    revise(writer, *range(1, 46))
    trimmed(lake)
    shutil.rmtree(lake.uri(NAME))
    lake.ensure(NAME, SCHEMA, statistics=["id"])
    revise(Writer(lake, NAME), 1, 2)
    assert stored(lake) == [(id, 2) for id in range(IDS)]
