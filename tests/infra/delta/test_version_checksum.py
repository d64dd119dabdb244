"""Version checksums of commits of delta-rs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from fsspec.implementations.local import LocalFileSystem

from twofold.infra.delta.version_checksum import write_checksum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commit(path: Path, rows: int, mode: str = "append") -> int:
    write_deltalake(str(path), pa.table({"n": list(range(rows))}), mode=mode)  # type: ignore[call-overload]
    return DeltaTable(str(path)).version()


def checksum(path: Path, version: int) -> Mapping[str, Any]:
    write_checksum(LocalFileSystem(), f"{path}/_delta_log", version)
    return dict(json.loads((path / "_delta_log" / f"{version:020d}.crc").read_text()))


def size_on_disk(path: Path, *names: str) -> int:
    return sum((path / name).stat().st_size for name in names)


def test_it_counts_the_files_that_the_version_has(tmp_path: Path) -> None:
    for rows in (1, 2, 3):
        version = commit(tmp_path, rows)
    found = checksum(tmp_path, version)
    files = [p.name for p in tmp_path.glob("*.parquet")]
    assert (found["numFiles"], found["tableSizeBytes"]) == (3, size_on_disk(tmp_path, *files))


def test_removed_files_are_not_counted(tmp_path: Path) -> None:
    commit(tmp_path, 5)
    version = commit(tmp_path, 2, mode="overwrite")
    found = checksum(tmp_path, version)
    (left,) = pa.table(DeltaTable(str(tmp_path)).get_add_actions()).to_pylist()
    assert (found["numFiles"], found["tableSizeBytes"]) == (1, size_on_disk(tmp_path, left["path"]))


def test_it_goes_on_from_the_one_before(tmp_path: Path) -> None:
    first = commit(tmp_path, 1)
    checksum(tmp_path, first)
    log = tmp_path / "_delta_log"
    second = commit(tmp_path, 1)
    (log / f"{first:020d}.json").unlink()
    assert checksum(tmp_path, second)["numFiles"] == 2


def test_old_checksums_are_removed_and_the_newest_stay(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    log = tmp_path / "_delta_log"
    whole = (log / f"{0:020d}.crc").read_text() if checksum(tmp_path, 0) else ""
    (log / f"{0:020d}.json").rename(log / f"{400:020d}.json")
    for version in range(400):
        (log / f"{version:020d}.crc").write_text(whole)
    write_checksum(LocalFileSystem(), str(log), 400)
    left = sorted(int(path.stem) for path in log.glob("*.crc"))
    assert (left[0], left[-1], len(left)) == (201, 400, 200)
    assert json.loads((log / f"{400:020d}.crc").read_text())["numFiles"] == 2


def test_one_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    checksum(tmp_path, commit(tmp_path, 1))
    torn = commit(tmp_path, 1)
    checksum(tmp_path, torn)
    file = tmp_path / "_delta_log" / f"{torn:020d}.crc"
    file.write_bytes(file.read_bytes()[:40])
    assert checksum(tmp_path, commit(tmp_path, 1))["numFiles"] == 3


def test_a_log_that_lacks_something_gets_none(tmp_path: Path) -> None:
    first, second = commit(tmp_path, 1), commit(tmp_path, 1)
    (tmp_path / "_delta_log" / f"{first:020d}.json").unlink()
    write_checksum(LocalFileSystem(), f"{tmp_path}/_delta_log", second)
    assert not list((tmp_path / "_delta_log").glob("*.crc"))


@pytest.mark.spark
def test_spark_takes_it_for_its_own_and_goes_on_from_it(tmp_path: Path, spark: SparkSession) -> None:
    commit(tmp_path, 3)
    checksum(tmp_path, commit(tmp_path, 4))
    spark.range(5).selectExpr("id AS n").write.format("delta").mode("append").save(str(tmp_path))
    ours, theirs = (json.loads((tmp_path / "_delta_log" / f"{v:020d}.crc").read_text()) for v in (1, 2))
    assert theirs["metadata"]["id"] == ours["metadata"]["id"]
    assert theirs["numFiles"] - ours["numFiles"] == sum(
        '"add"' in line for line in (tmp_path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()
    )
    assert spark.read.format("delta").load(str(tmp_path)).count() == 12
