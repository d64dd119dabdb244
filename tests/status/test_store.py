"""The store gives back what was saved last; a file that cannot be used is made again, and nothing waits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from twofold.infra.project.settings import Settings
from twofold.status import store as store_module
from twofold.status.store import Store, TableVersion

TABLE_VERSIONS = {"plant.hours": TableVersion(3, "abc", {"rows": 7, "late": {"1000": 2}})}


@pytest.fixture
def store(settings: Settings) -> Store:
    return Store(settings)


@pytest.fixture
def file(settings: Settings) -> Path:
    return settings.home / "status.sqlite"


def test_what_was_saved_last_is_known(store: Store) -> None:
    assert (store.table_versions(), store.latest("snapshot")) == ({}, None)
    assert store.save(TABLE_VERSIONS, snapshot={"problems": ["ü"]})
    assert store.table_versions() == TABLE_VERSIONS
    saved = store.latest("snapshot")
    assert saved is not None
    assert saved.value == {"problems": ["ü"]}
    assert store.save({}, catalog={}), "tables that are gone are forgotten, documents stay"
    assert store.table_versions() == {}
    assert store.latest("snapshot") == saved


@pytest.mark.parametrize("damage", ["other bytes", "an empty file", "another format", "no table"])
def test_a_file_that_cannot_be_used_is_empty_and_is_made_again(store: Store, file: Path, damage: str) -> None:
    assert store.save(TABLE_VERSIONS)
    match damage:
        case "other bytes":
            file.write_bytes(b"\x00" * 5_000)
        case "an empty file":
            file.write_bytes(b"")
        case "another format":
            with closing(sqlite3.connect(file)) as db:
                db.execute(f"PRAGMA user_version={store_module.FORMAT + 1}")
        case _:
            file.unlink()
    assert store.table_versions() == {}
    assert store.save(TABLE_VERSIONS)
    assert store.table_versions() == TABLE_VERSIONS


def test_a_second_writer_gives_way_and_a_reader_reads_what_was_there(store: Store, file: Path) -> None:
    assert store.save(TABLE_VERSIONS)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM heads")
        assert store.save({}) is False
        assert store.table_versions() == TABLE_VERSIONS
        other.execute("ROLLBACK")
    assert store.save({})


def test_a_home_that_cannot_be_written_to_is_no_error(settings: Settings, store: Store) -> None:
    settings.home.write_text("no folder")
    assert store.save(TABLE_VERSIONS) is False
    assert store.table_versions() == {}
