"""Files of a table: few of them, and those of a table that is merged into apart by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from twofold.infra.delta.compaction import Extent, compact, is_mixed, merged_size
from twofold.infra.delta.delta_writer import CommitTag, Writer, Written
from twofold.infra.delta.lake import QUARANTINE, Lake

NAME = "plant.hours"
SCHEMA = pa.schema([("sensor", pa.string()), ("hour", pa.timestamp("us", tz="UTC")), ("total", pa.float64())])
SENSORS, HOURS, START = 200, 100, datetime(2024, 1, 1, tzinfo=UTC)
TARGET = 60_000


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def rows(hours: range, seed: int) -> pa.Table:
    """A row of each sensor and hour, its total drawn by chance so that no file shrinks to nothing."""
    chance = Random(seed)
    pairs = [(f"s{sensor}", hour(at)) for at in hours for sensor in range(SENSORS)]
    totals = [chance.random() for _ in pairs]
    columns = {"sensor": [p[0] for p in pairs], "hour": [p[1] for p in pairs], "total": totals}
    return pa.table(columns, schema=SCHEMA)


def extents(lake: Lake) -> list[tuple[datetime, datetime]]:
    files = pa.table(lake.open(NAME).get_add_actions(flatten=True)).to_pylist()
    return sorted((file["min.hour"], file["max.hour"]) for file in files)


def stored(lake: Lake) -> pa.Table:
    found = pa.table(lake.open(NAME).scan()).select(SCHEMA.names).cast(SCHEMA)
    return found.sort_by([("hour", "ascending"), ("sensor", "ascending")])


@pytest.fixture
def writer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setattr("twofold.infra.delta.compaction.TARGET", TARGET)
    lake.ensure(NAME, SCHEMA, statistics=["sensor", "hour"])
    return Writer(lake, NAME)


def revise(writer: Writer, number: int, hours: range) -> Written:
    """What a stream does: replace the rows of some hours, add those that are not there."""
    return writer.upsert(rows(hours, number), ["sensor", "hour"], CommitTag(app="stream", version=number))


def test_few_rows_are_in_one_file(lake: Lake, writer: Writer) -> None:
    for number in range(1, 6):
        writer.append(rows(range(number, number + 1), 0).slice(0, 9), CommitTag(app="test", version=number))
    before = stored(lake)
    compact(lake, NAME, "hour")
    assert extents(lake) == [(hour(1), hour(5))]
    assert stored(lake) == before
    assert lake.open(NAME).transaction_version("test") == 5


def test_a_long_table_is_clustered_so_that_a_revision_writes_its_end(lake: Lake, writer: Writer) -> None:
    writer.append(rows(range(HOURS), 0), CommitTag(app="test", version=1))
    assert revise(writer, 1, range(HOURS - 1, HOURS + 1)).updated == SENSORS
    before, version = stored(lake), lake.version(NAME)
    assert len(extents(lake)) < 3

    compact(lake, NAME, "hour")
    apart = extents(lake)
    assert len(apart) == 4
    assert all(one[1] <= other[0] for one, other in pairwise(apart))
    assert stored(lake) == before
    commits = list(lake.commits(NAME, version, lake.version(NAME)))
    assert [(c.operation, c.changes) for c in commits] == [("SET TBLPROPERTIES", False), ("OPTIMIZE", False)]

    assert revise(writer, 2, range(HOURS, HOURS + 2)).files <= 2
    assert [e for e in apart if e in extents(lake)] == apart[:-1]


def test_what_is_in_order_is_not_sorted_again(lake: Lake, writer: Writer) -> None:
    writer.append(rows(range(HOURS), 0), CommitTag(app="test", version=1))
    compact(lake, NAME, "hour")
    apart, version = extents(lake), lake.version(NAME)
    compact(lake, NAME, "hour")
    assert (lake.version(NAME), extents(lake)) == (version, apart)


def test_the_newest_rows_are_not_made_one_with_old_ones(lake: Lake, writer: Writer) -> None:
    writer.append(rows(range(HOURS), 0), CommitTag(app="test", version=1))
    compact(lake, NAME, "hour")
    apart = extents(lake)
    for number in range(2, 5):
        writer.append(rows(range(HOURS, HOURS + 1), 0).slice(9 * number, 9), CommitTag(app="test", version=number))
    compact(lake, NAME, "hour")
    assert extents(lake) == [*apart, (hour(HOURS), hour(HOURS))]


def test_rows_that_a_correction_has_mixed_are_sorted_apart_again(lake: Lake, writer: Writer) -> None:
    writer.append(rows(range(HOURS), 0), CommitTag(app="test", version=1))
    compact(lake, NAME, "hour")
    apart = extents(lake)
    late = pa.concat_tables([rows(range(at, at + 1), 7) for at in range(0, HOURS, 9)])
    writer.upsert(late, ["sensor", "hour"], CommitTag(app="reconcile", version=1))
    assert not set(apart) & set(extents(lake))
    before = stored(lake)
    compact(lake, NAME, "hour")
    assert len(extents(lake)) == len(apart)
    assert all(one[1] <= other[0] for one, other in pairwise(extents(lake)))
    assert stored(lake) == before


def test_the_end_of_a_table_too_long_to_be_sorted_does_not_grow(
    lake: Lake, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.infra.delta.compaction._MOST", 0)
    monkeypatch.setattr("twofold.infra.delta.compaction._FILES", 4)
    for at in range(100):
        revise(writer, at + 1, range(max(0, at - 1), at + 1))
        if at % 10 == 9:
            compact(lake, NAME, "hour")
    files = pa.table(lake.open(NAME).get_add_actions(flatten=True)).to_pylist()
    total, sizes = sum(f["size_bytes"] for f in files), sorted(f["size_bytes"] for f in files)
    assert total > 2 * TARGET
    assert sizes[-1] <= 2 * TARGET
    assert len(files) <= 2 * 4 + 2
    assert sum(f["max.hour"] >= hour(99) for f in files) == 1
    [newest] = [f for f in files if f["max.hour"] >= hour(99)]
    assert newest["size_bytes"] < TARGET


@pytest.mark.parametrize(
    ("total", "size"),
    [(0, 25), (2_048 * 25, 25), (2_048 * 25 + 1, 50), (2_048 * 1_000, 1_600), (10**9, 1_600)],
)
def test_files_grow_with_a_large_table_and_not_beyond_a_bound(total: int, size: int) -> None:
    assert merged_size(total, 100) == size


def test_a_table_that_is_kept_small_is_compacted_by_every_hundredth_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.infra.delta.delta_writer._TIDY_EVERY", 5)
    name = "plant.readings" + QUARANTINE
    lake.ensure(name, SCHEMA, statistics=["hour"])
    for number in range(1, 6):
        writer = Writer(lake, name, keep_small=compact)
        writer.append(rows(range(1), number).slice(0, 9), CommitTag(app="ingest", version=number))
    assert (len(lake.open(name).file_uris()), lake.rows(name)) == (1, 45)
    assert lake.open(name).metadata().configuration["delta.enableChangeDataFeed"] == "true"


def extent(size: int, least: int | None, greatest: int | None, rows: int = 10_000) -> Extent:
    return Extent(rows, size, least, greatest)


@pytest.mark.parametrize(
    ("files", "mixed"),
    [
        ([], False),
        ([extent(10, 0, 9)], False),
        ([extent(21, 0, 9)], True),  # more than two of ten
        ([extent(21, 0, 9, rows=2_048)], False),  # no file can have fewer rows of such a size
        ([extent(10, 0, 4), extent(10, 4, 4), extent(10, 4, 9)], False),  # they meet, and share no span
        ([extent(10, 0, 5), extent(10, 4, 9)], False),  # too little to pay
        ([extent(10, 0, 5), extent(11, 4, 9)], True),
        ([extent(10, 0, 5), extent(11, 4, 9), extent(400, 9, 9)], True),
        ([extent(10, 0, 5), extent(11, 4, 9), *(extent(20, n, n) for n in range(9, 26))], False),  # 21 of 361
        ([extent(10, 0, 5), extent(11, None, None)], False),
        ([extent(1 << 28, 0, 5), extent(11, 4, 9)], False),  # too much to be sorted meanwhile
    ],
)
def test_sorting_pays_where_enough_is_mixed(files: list[Extent], mixed: bool) -> None:
    assert is_mixed(files, 10) is mixed
