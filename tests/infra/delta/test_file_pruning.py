"""Which files of a Delta table a slice opens."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from twofold.infra.delta.file_pruning import ValueBounds, prune_files
from twofold.infra.instants import Interval, epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def file_of(path: Path, at: Sequence[datetime | None], airport: list[str]) -> None:
    days = [t and t.date() for t in at]
    table = pa.table(
        {"at": pa.array(at, pa.timestamp("us", "UTC")), "day": pa.array(days, pa.date32()), "airport": airport}
    )
    write_deltalake(str(path), table, mode="append")


@pytest.fixture
def three_files(tmp_path: Path) -> DeltaTable:
    """Noon at EWR, 15:00 to 16:00 at JFK and LGA, the next noon at EWR."""
    file_of(tmp_path, [NOON], ["EWR"])
    file_of(tmp_path, [NOON + 3 * HOUR, NOON + 4 * HOUR], ["JFK", "LGA"])
    file_of(tmp_path, [NOON + 24 * HOUR], ["EWR"])
    return DeltaTable(str(tmp_path))


def between(start: datetime, end: datetime) -> list[Interval]:
    return [Interval(epoch_ms(start) or 0, epoch_ms(end) or 0)]


def rows_of(table: DeltaTable, bounds: ValueBounds) -> int | None:
    return prune_files(table, bounds).rows


def test_without_bounds_all_files_are_read(three_files: DeltaTable) -> None:
    assert rows_of(three_files, ValueBounds()) == 4
    assert len(prune_files(three_files, ValueBounds()).paths) == 3


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        (NOON, NOON, 1),
        (NOON + HOUR, NOON + 2 * HOUR, 0),
        (NOON + HOUR, NOON + 3 * HOUR, 2),
        (NOON + 4 * HOUR, NOON + 30 * HOUR, 3),
        (NOON - 9 * HOUR, NOON - HOUR, 0),
    ],
)
def test_files_outside_of_the_ranges_are_left_closed(
    three_files: DeltaTable, start: datetime, end: datetime, rows: int
) -> None:
    assert rows_of(three_files, ValueBounds(time="at", ranges=between(start, end))) == rows


def test_a_date_lasts_its_whole_day(three_files: DeltaTable) -> None:
    late = between(NOON + 11 * HOUR, NOON + 11 * HOUR)
    assert rows_of(three_files, ValueBounds(time="day", ranges=late)) == 3
    assert date(2013, 1, 1) == NOON.date()


def test_files_without_one_of_the_values_are_left_closed(three_files: DeltaTable) -> None:
    assert rows_of(three_files, ValueBounds(values={"airport": frozenset({"EWR"})})) == 2
    assert rows_of(three_files, ValueBounds(values={"airport": frozenset({"AAA", "KKK"})})) == 2
    assert rows_of(three_files, ValueBounds(values={"airport": frozenset({"AAA", "ZZZ"})})) == 0


def test_null_among_the_values_keeps_every_file(three_files: DeltaTable) -> None:
    assert rows_of(three_files, ValueBounds(values={"airport": frozenset({"AAA", None})})) == 4


def test_a_time_that_statistics_cut_to_the_millisecond_is_found(tmp_path: Path) -> None:
    at = NOON + timedelta(microseconds=999)
    file_of(tmp_path, [at], ["EWR"])
    just_after = [Interval((epoch_ms(NOON) or 0) + 1, (epoch_ms(NOON) or 0) + 2)]
    assert rows_of(DeltaTable(str(tmp_path)), ValueBounds(time="at", ranges=just_after)) == 1


def test_a_value_that_statistics_cut_to_the_millisecond_is_found(tmp_path: Path) -> None:
    at = NOON + timedelta(microseconds=999)
    file_of(tmp_path, [NOON, at], ["EWR", "EWR"])
    table = DeltaTable(str(tmp_path))
    assert rows_of(table, ValueBounds(values={"at": frozenset({at})})) == 2
    assert rows_of(table, ValueBounds(values={"at": frozenset({at + timedelta(milliseconds=2)})})) == 0


def test_a_file_without_statistics_may_hold_anything(three_files: DeltaTable) -> None:
    log = Path(three_files.table_uri.removeprefix("file://"), "_delta_log", f"{1:020d}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    log.write_text("\n".join(map(json.dumps, actions)))
    table = DeltaTable(three_files.table_uri)
    never = ValueBounds(time="at", ranges=between(NOON - 9 * HOUR, NOON - HOUR), values={"airport": frozenset({"ZZZ"})})
    assert (len(prune_files(table, never).paths), rows_of(table, never)) == (1, None)


def test_files_below_a_folder_with_a_space_are_read_in_this_process(tmp_path: Path) -> None:
    file_of(tmp_path / "a home", [NOON], ["EWR"])
    rows = prune_files(DeltaTable(str(tmp_path / "a home")), ValueBounds()).read_if_small(
        "", pa.table({"n": [0]}), 10, ["airport"]
    )
    assert rows is not None
    assert rows["airport"].to_pylist() == ["EWR"]


def test_a_file_with_a_row_that_lacks_the_time_is_read(tmp_path: Path) -> None:
    file_of(tmp_path, [NOON], ["EWR"])
    file_of(tmp_path, [NOON, None], ["EWR", "JFK"])
    found = prune_files(DeltaTable(str(tmp_path)), ValueBounds(time="at", ranges=between(NOON + HOUR, NOON + HOUR)))
    assert (found.rows, found.is_undated) == (2, True)


def test_many_files_are_chosen_in_a_tenth_of_a_second(tmp_path: Path) -> None:
    file_of(tmp_path, [NOON], ["EWR"])
    log = tmp_path / "_delta_log"
    [add] = [json.loads(line)["add"] for line in (log / f"{0:020d}.json").read_text().splitlines() if '"add"' in line]
    known, lines = json.loads(add["stats"]), []
    for n in range(20_000):
        at = f"{NOON + n * HOUR:%Y-%m-%dT%H:%M:%S.000Z}"
        extent = {"day": at[:10], "at": at, "airport": "EWR"}
        stats = json.dumps({**known, "minValues": extent, "maxValues": extent})
        lines.append(json.dumps({"add": {**add, "path": f"{n}.parquet", "stats": stats}}))
    (log / f"{1:020d}.json").write_text("\n".join(lines))
    table = DeltaTable(str(tmp_path))
    wanted = ValueBounds(time="at", ranges=between(NOON + 50 * HOUR, NOON + 51 * HOUR))
    assert rows_of(table, wanted) == 2
    began = time.process_time()
    prune_files(table, wanted)
    assert time.process_time() - began < 0.1


@pytest.mark.spark
def test_spark_reads_files_below_a_folder_with_a_space(tmp_path: Path, spark: SparkSession) -> None:
    file_of(tmp_path / "a home", [NOON], ["EWR"])
    frame = prune_files(DeltaTable(str(tmp_path / "a home")), ValueBounds()).frame(spark)
    assert frame.count() == 1


@pytest.mark.spark
def test_spark_reads_just_these_files(three_files: DeltaTable, spark: SparkSession) -> None:
    frame = prune_files(three_files, ValueBounds(values={"airport": frozenset({"EWR"})})).frame(spark)
    assert sorted((r.at.hour, r.airport) for r in frame.collect()) == [(12, "EWR"), (12, "EWR")]
    nothing = prune_files(three_files, ValueBounds(values={"airport": frozenset({"ZZZ"})})).frame(spark)
    assert (nothing.count(), nothing.columns) == (0, ["at", "day", "airport"])


@pytest.mark.spark
def test_a_partitioned_table_is_read_with_its_partition_columns(tmp_path: Path, spark: SparkSession) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1, 2], "airport": ["EWR", "JFK"]}), partition_by=["airport"])
    frame = prune_files(DeltaTable(str(tmp_path)), ValueBounds()).frame(spark)
    assert sorted(map(tuple, frame.select("n", "airport").collect())) == [(1, "EWR"), (2, "JFK")]
