"""A copy of a part of a platform, in which a rewrite of history is tried."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from batch.plan.platform_copy import copied
from infra.delta.delta_writer import CommitTag, Writer
from infra.delta.lake import Lake
from infra.settings import Settings
from tables.declare.registry import load
from tables.refresh.open_platform import Platform

NAME = "flights.flights"
ROWS = pa.table({"airport": ["EWR", "JFK"]})
OTHER_DISK = Path("/dev/shm")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder on another disk than temporary ones."""
    if not OTHER_DISK.is_dir() or OTHER_DISK.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two file systems")
    place = Path(tempfile.mkdtemp(dir=OTHER_DISK))
    yield place
    shutil.rmtree(place)


def platform(settings: Settings) -> Platform:
    """One with a single table, which needs no Spark."""
    lake = Lake(settings)
    lake.ensure(NAME, ROWS.schema, statistics=[])
    Writer(lake, NAME).upsert(ROWS, ["airport"], CommitTag(app="stream", version=1))
    return Platform(lambda: pytest.fail("no Spark is needed"), lake, load())


def test_a_lake_on_another_disk_than_the_home_is_copied(home: Path, tmp_path: Path) -> None:
    live = platform(Settings(home=home, lake=str(tmp_path / "lake")))
    with copied(live, [NAME], home / "run-1") as copy:
        assert copy.lake.open(NAME).count() == len(ROWS)
        assert (copy.lake.names(), live.lake.names()) == ([NAME], [NAME])
    assert list((tmp_path / "lake" / "_copies").iterdir()) == []


def test_what_a_killed_maker_of_a_copy_left_is_removed(tmp_path: Path) -> None:
    live = platform(Settings(home=tmp_path))
    left, used = (tmp_path / "lake" / "_copies" / name for name in ("left", "used"))
    for folder in (left, used):
        folder.mkdir(parents=True)
    os.utime(left, (0, 0))
    with copied(live, [NAME], tmp_path / "run-1"):
        assert (left.exists(), used.exists()) == (False, True)
