"""A copy of a part of a platform, in which a rewrite of history is tried."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from twofold.batch.plan.platform_copy import copied
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load
from twofold.tables.refresh.open_platform import Platform
from twofold.tables.refresh.shadow_lake import shadow_settings

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


def test_a_copy_encrypts_by_the_keys_of_persons_at_their_default_place(tmp_path: Path) -> None:
    live = platform(Settings(home=tmp_path))
    make_keys(live.lake.settings)
    with copied(live, [NAME], tmp_path / "run-1") as copy:
        shadow = shadow_settings(live.lake.settings, live.registry.tables["flights.carrier_days"])
        of_copy, of_shadow, of_live = (encrypted(s) for s in (copy.lake.settings, shadow, live.lake.settings))
    assert of_copy == of_shadow == of_live


def encrypted(settings: Settings) -> str:
    """A text, encrypted by the key of one customer, which the first who asks for it makes."""
    ann = Person("customer", "ann")
    with closing(KeyStore(settings)) as store:
        key = store.keys_of([ann])[ann]
    assert key is not None
    return key.encrypt(b"a@b.c", b"v")


def test_a_copy_reads_the_log_and_the_archive_of_the_platform(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, kafka_port=1234)
    copy = settings.of_copy(tmp_path / "run-1")
    assert (copy.bootstrap_servers, copy.archive_uri) == ("127.0.0.1:1234", str(tmp_path / "tiered"))
    assert copy.of_copy(tmp_path / "run-2").archive_uri == copy.archive_uri
