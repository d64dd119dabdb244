"""Which rows a stream may have missed, by the Delta log alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.infra.delta.test_lake import clean_log
from twofold.batch.late_rows import missed_by_streams
from twofold.infra.delta.change_feed import changed_rows, sides_of
from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import ChangesUnread
from twofold.tables.declare.metadata_columns import LATE_BY_MS, OFFSET, REPLAYED

NAME = "plant.readings"
SCHEMA = pa.schema([("sensor", pa.string()), (OFFSET, pa.int64()), (LATE_BY_MS, pa.int64()), (REPLAYED, pa.bool_())])
DELAY = 1_000


class Events:
    """An events table, written commit by commit."""

    def __init__(self, lake: Lake) -> None:
        lake.ensure(NAME, SCHEMA, statistics=[OFFSET, LATE_BY_MS])
        self.lake, self.writer, self.commits = lake, Writer(lake, NAME), 0

    def append(self, *late_by: int | None, replayed: bool = False) -> None:
        """One micro-batch; the offsets go on."""
        self.commits += 1
        first = self.lake.rows(NAME)
        table = pa.Table.from_pylist(
            [
                {"sensor": "a", OFFSET: first + n, LATE_BY_MS: late, REPLAYED: replayed}
                for n, late in enumerate(late_by)
            ],
            schema=SCHEMA,
        )
        info = {"cause": "replay" if replayed else "ingest"}
        self.writer.append(table, CommitTag(app="test", version=self.commits, info=info))

    def upsert(self, offset: int, sensor: str) -> None:
        """A replay that changes a row."""
        row = {"sensor": sensor, OFFSET: offset, LATE_BY_MS: 0, REPLAYED: True}
        info = {"cause": "replay"}
        self.writer.upsert(
            pa.Table.from_pylist([row], schema=SCHEMA), [OFFSET], CommitTag(app="replay", version=offset, info=info)
        )

    def missed(self, after: int = -1, delay: int | None = DELAY) -> tuple[list[int], list[tuple[int, str]]]:
        """Offsets of late rows, offsets and sensors of replayed ones."""
        found = missed_by_streams(self.lake, NAME, after, self.lake.version(NAME), ["sensor", OFFSET], delay)
        replayed = zip(found.replayed[OFFSET].to_pylist(), found.replayed["sensor"].to_pylist(), strict=True)
        return sorted(found.late[OFFSET].to_pylist()), sorted(replayed)


@pytest.fixture
def events(lake: Lake) -> Events:
    return Events(lake)


def test_rows_at_or_beyond_the_delay_are_late(events: Events) -> None:
    events.append(None, None)
    events.append(0, 999, 1_000, -5)
    events.append(1_001)
    assert events.missed() == ([4, 6], [])


def test_only_versions_after_the_last_look_are_searched(events: Events) -> None:
    events.append(5_000)
    seen = events.lake.version(NAME)
    events.append(6_000)
    assert events.missed(after=seen) == ([1], [])
    assert events.missed(after=events.lake.version(NAME)) == ([], [])


def test_a_stream_that_drops_nothing_misses_nothing(events: Events) -> None:
    events.append(5_000)
    assert events.missed(delay=None) == ([], [])


def test_files_whose_statistics_exclude_late_rows_are_not_opened(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.dataset as ds

    for late in (0, 999, 7_000, 5, 1_000):
        events.append(late)
    opened: list[str] = []
    dataset = ds.dataset

    def spy(paths: Sequence[str], **options: object) -> object:
        opened.extend(paths)
        return dataset(paths, **options)

    monkeypatch.setattr(ds, "dataset", spy)
    assert events.missed() == ([2, 4], [])
    assert len(opened) == 2
    opened.clear()
    assert events.missed(delay=8_000) == ([], [])
    assert opened == []


def test_a_file_without_statistics_is_opened(lake: Lake) -> None:
    lake.ensure(NAME, SCHEMA, statistics=[OFFSET])
    events = Events(lake)
    events.append(0)
    events.append(7_000)
    assert events.missed() == ([1], [])


def test_a_late_row_is_found_after_its_file_was_merged_with_others(events: Events) -> None:
    events.append(0)
    events.append(7_000)
    compact(events.lake, NAME)
    events.append(3)
    assert events.missed() == ([1], [])
    assert events.missed(after=2) == ([], [])


def test_a_late_row_is_found_after_its_file_was_vacuumed(events: Events) -> None:
    events.append(0)
    events.append(7_000)
    compact(events.lake, NAME)
    events.lake.open(NAME).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert 1 in events.missed()[0]


def test_replays_are_reported_by_old_and_new_rows(events: Events) -> None:
    events.append(0, 0)
    events.upsert(1, "b")
    events.append(9_000, replayed=True)
    assert events.missed() == ([], [(1, "a"), (1, "b"), (2, "a")])


def test_deleted_rows_are_reported(events: Events) -> None:
    events.append(0, 0)
    events.lake.open(NAME).delete(f"{OFFSET} = 0")
    assert events.missed() == ([], [(0, "a")])


def test_behind_a_cleaned_up_log_all_late_and_replayed_rows_are_reported(events: Events) -> None:
    events.append(0, 7_000)
    events.append(9_000, replayed=True)
    events.append(8_000)
    clean_log(events.lake, NAME, 1)
    late, replayed = events.missed()
    assert {1, 3} <= set(late)
    assert replayed == [(2, "a")]
    assert events.missed(after=2) == ([3], [])


def test_all_changes_of_a_table_are_reported_without_maintenance(events: Events) -> None:
    events.append(0)
    compact(events.lake, NAME)
    events.upsert(0, "b")
    events.append(0)
    compact(events.lake, NAME)
    newest = events.lake.version(NAME)
    found = changed_rows(events.lake, NAME, -1, newest, ["sensor", OFFSET])
    assert sorted((r[OFFSET], r["sensor"]) for r in found.to_pylist()) == [(0, "a"), (0, "a"), (0, "b"), (1, "a")]
    assert len(changed_rows(events.lake, NAME, newest, newest, ["sensor"])) == 0


def test_missing_data_files_do_not_go_unnoticed(events: Events) -> None:
    events.append(7_000)
    for file in Path(events.lake.uri(NAME)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match=r"(?i)not found|no such file|no files found"):
        events.missed()


def test_changes_of_columns_that_the_table_lacks_are_counted_all_the_same(events: Events) -> None:
    events.append(0, 0)
    events.append(0)
    rows = changed_rows(events.lake, NAME, 1, events.lake.version(NAME), ["customer"])
    assert (rows.column_names, len(rows)) == (["_change_type"], 1)


def test_a_commit_whose_changes_cannot_be_seen_is_an_error(events: Events) -> None:
    events.append(0)
    version = events.lake.version(NAME)
    commit = Path(events.lake.uri(NAME), "_delta_log", f"{version:020}.json")
    actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
    [added] = [action["add"] for action in actions if "add" in action]
    file = Path(events.lake.uri(NAME), added["path"])
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    added["size"] = file.stat().st_size
    commit.write_text("\n".join(map(json.dumps, actions)), "utf-8")
    with pytest.raises(ChangesUnread, match=rf"the commits {version} to {version} changed 1 rows, and 0 of them"):
        changed_rows(events.lake, NAME, version - 1, version, ["sensor"])
    with pytest.raises(ChangesUnread, match=rf"the commits {version} to {version} changed 1 rows, and 0 of them"):
        sides_of(events.lake, NAME, [version], ["sensor"])
