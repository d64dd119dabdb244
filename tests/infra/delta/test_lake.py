"""What the Delta logs give away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from twofold.infra.delta.compaction import compact
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake, with_comments
from twofold.infra.errors import BadArgument, DamagedLog, SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
NAME = "plant.counts"


def rows(**counts: int) -> pa.Table:
    return pa.table({"k": list(counts), "n": list(counts.values())}, schema=SCHEMA)


@pytest.fixture
def counts(lake: Lake) -> Writer:
    lake.ensure(NAME, SCHEMA, statistics=["n"])
    return Writer(lake, NAME)


def append(writer: Writer, version: int, table: pa.Table, **info: object) -> None:
    writer.append(table, CommitTag(app="test", version=version, info=info))


def test_a_table_that_was_never_written_is_named(lake: Lake) -> None:
    assert not lake.exists(NAME)
    with pytest.raises(BadArgument, match=r"The Delta table plant\.counts does not exist yet"):
        lake.open(NAME)


def test_a_table_is_made_once_and_keeps_its_rows(lake: Lake, counts: Writer) -> None:
    append(counts, 1, rows(a=1))
    lake.ensure(NAME, SCHEMA, statistics=["n"])
    assert (lake.version(NAME), lake.rows(NAME), lake.names()) == (1, 1, [NAME])


def test_a_commit_says_what_it_did(lake: Lake, counts: Writer) -> None:
    append(counts, 7, rows(a=1, b=5), cause="test", ends={0: 2})
    (commit,) = lake.commits(NAME, 0, 1)
    assert (commit.version, commit.changes, commit.rewrites) == (1, True, False)
    assert (commit.info, commit.transactions) == ({"cause": "test", "ends": {"0": 2}}, {"test": 7})
    assert [(a.rows, a.greatest) for a in commit.added] == [(2, {"n": 5})]


def test_a_merge_rewrites_and_maintenance_changes_nothing(lake: Lake, counts: Writer) -> None:
    append(counts, 1, rows(a=1))
    append(counts, 2, rows(b=2))
    counts.upsert(rows(a=9), ["k"], CommitTag(app="merge", version=1))
    before = lake.version(NAME)
    compact(lake, NAME)
    commits = {c.version: c for c in lake.commits(NAME, 2, lake.version(NAME))}
    assert (commits[3].rewrites, commits[3].changes) == (True, True)
    assert lake.version(NAME) > before
    assert [(c.rewrites, c.changes, c.added) for v, c in commits.items() if v > before] == [(False, False, ())]


def test_the_newest_commit_with_a_fact_is_found_behind_others(lake: Lake, counts: Writer) -> None:
    append(counts, 1, rows(a=1), ends={"0": 1})
    append(counts, 2, rows(b=1), ends={"0": 2})
    append(counts, 3, rows(c=1), cause="replay")
    assert lake.newest_info(NAME, "ends") == {"ends": {"0": 2}}
    assert lake.newest_info(NAME, "ends", within=1) is None
    assert lake.newest_info(NAME, "watermark_ms") is None


def test_a_commit_is_found_by_its_transaction(lake: Lake, counts: Writer) -> None:
    for version in (1, 2, 3):
        append(counts, version, rows(a=version))
    found = lake.commit_of(NAME, "test", 2, after=0)
    assert found is not None
    assert (found.version, found.count("num_added_rows")) == (2, 1)
    assert lake.commit_of(NAME, "test", 2, after=2) is None
    assert lake.commit_of(NAME, "test", 9, after=0) is None


def test_a_log_that_was_cleaned_up_says_so(lake: Lake, counts: Writer) -> None:
    append(counts, 1, rows(a=1))
    clean_log(lake, NAME, 0)
    with pytest.raises(FileNotFoundError):
        list(lake.commits(NAME, -1, 1))


def clean_log(lake: Lake, name: str, through: int) -> None:
    """Remove the commits up to a version, as Delta does behind a checkpoint."""
    from pathlib import Path

    lake.open(name).create_checkpoint()
    for version in range(through + 1):
        Path(lake.uri(name), "_delta_log", f"{version:020d}.json").unlink()


MORE = pa.schema([("at", pa.timestamp("us", tz="UTC")), *SCHEMA, ("names", pa.list_(pa.string()))])


def test_a_version_is_read_as_delta_reads_it_whatever_is_behind_it(lake: Lake, counts: Writer) -> None:
    for version in range(1, 20):
        append(counts, version, rows(a=version))
        assert lake.version(NAME) == version == lake.open(NAME).version()
        if version == 12:
            clean_log(lake, NAME, 11)


def test_the_version_of_a_table_that_is_not_there_is_refused(lake: Lake) -> None:
    with pytest.raises(BadArgument, match=r"plant\.counts does not exist yet"):
        lake.version(NAME)


def test_a_table_gets_the_columns_that_it_lacks_once(lake: Lake, counts: Writer) -> None:
    append(counts, 1, rows(a=1))
    lake.extend(NAME, SCHEMA)
    assert lake.version(NAME) == 1
    for _ in range(2):
        lake.extend(NAME, MORE)
        assert lake.version(NAME) == 2
    assert pa.table(lake.open(NAME).scan()).to_pylist() == [{"k": "a", "n": 1, "at": None, "names": None}]


def test_a_table_and_its_columns_are_described_once(lake: Lake, counts: Writer) -> None:
    for _ in range(2):
        lake.describe(NAME, "Counts.", {"n": "how many", "unknown": "no column"})
    assert {f.name: f.metadata for f in lake.open(NAME).schema().fields} == {"k": {}, "n": {"comment": "how many"}}
    assert (lake.version(NAME), lake.open(NAME).metadata().description) == (2, "Counts.")
    append(counts, 1, rows(a=1))
    lake.describe(NAME, "Counts.", {"n": "how often"})
    assert (lake.version(NAME), lake.rows(NAME)) == (4, 1)
    assert lake.open(NAME).schema().fields[1].metadata == {"comment": "how often"}
    described = with_comments(SCHEMA, {"k": "which"})
    assert [column.metadata for column in described] == [{b"comment": b"which"}, None]


def test_a_stream_goes_on_when_its_table_is_described(
    spark: SparkSession, lake: Lake, counts: Writer, tmp_path: Path
) -> None:
    append(counts, 1, rows(a=1))
    events = spark.readStream.format("delta").load(lake.uri(NAME))
    sink = events.writeStream.format("memory").queryName("described").option("checkpointLocation", str(tmp_path / "c"))
    query = sink.start()
    try:
        query.processAllAvailable()
        lake.describe(NAME, "Counts.", {"n": "how many"})
        append(counts, 2, rows(b=2))
        query.processAllAvailable()
        assert sorted(row["n"] for row in spark.table("described").collect()) == [1, 2]
    finally:
        query.stop()


def test_a_column_of_another_type_is_refused_and_none_is_added(lake: Lake, counts: Writer) -> None:
    with pytest.raises(SchemaMismatch, match=r"plant\.counts: the column n is declared as string, and .* have long"):
        lake.extend(NAME, pa.schema([("names", pa.list_(pa.string())), ("n", pa.string())]))
    assert lake.version(NAME) == 0


def test_processes_that_add_the_same_columns_at_once_agree(lake: Lake, counts: Writer) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: lake.extend(NAME, MORE), range(8)))
    assert [field.name for field in lake.open(NAME).schema().fields] == ["k", "n", "at", "names"]
    assert lake.version(NAME) == 1


@pytest.mark.parametrize("left", [0, 100])
def test_a_commit_that_a_crash_cut_off_is_an_error(
    lake: Lake, counts: Writer, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr("twofold.infra.delta.lake._WAITS_S", ())
    append(counts, 1, rows(a=1))
    log = Path(lake.uri(NAME), "_delta_log", f"{1:020d}.json")
    log.write_bytes(log.read_bytes()[:left])
    with pytest.raises(DamagedLog, match=rf"{log.name} is {'cut off' if left else 'empty'}"):
        list(lake.commits(NAME, 0, 1))
    with pytest.raises(DamagedLog):
        lake.newest_info(NAME, "cause")


def test_a_commit_that_is_being_written_is_waited_for(
    lake: Lake, counts: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(counts, 1, rows(a=1))
    log = Path(lake.uri(NAME), "_delta_log", f"{1:020d}.json")
    whole = log.read_bytes()
    log.write_bytes(b"")
    monkeypatch.setattr("twofold.infra.delta.lake.time.sleep", lambda _: log.write_bytes(whole))
    (commit,) = lake.commits(NAME, 0, 1)
    assert commit.changes


def test_a_commit_is_on_the_disk_before_anything_follows_from_it(
    lake: Lake, counts: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(counts, 1, rows(a=1))
    counts.upsert(rows(a=2), ["k"], CommitTag(app="merge", version=1))
    synced: list[Path] = []
    monkeypatch.setattr("twofold.infra.atomic_write._sync", synced.append)
    lake.settle(NAME, lake.version(NAME))
    assert {path.suffix for path in synced} == {".json", ".parquet", ""}
    assert any("_change_data" in path.parts for path in synced)
    synced.clear()
    lake.settle(NAME, None)
    assert synced == []
