"""Files of SQLite are opened by one function, whose options do what they say."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests import ROOT, is_test
from tests.test_places import MODULES
from twofold.infra.sqlite_file import open_sqlite


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "100% of a#b?.sqlite"
    with closing(open_sqlite(file)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.execute("INSERT INTO t VALUES (1)")
    return file


def test_what_is_written_without_a_transaction_is_there_at_once(file: Path) -> None:
    with closing(open_sqlite(file)) as writer, closing(open_sqlite(file, wait_s=0)) as reader:
        writer.execute("INSERT INTO t VALUES (2)")
        assert reader.execute("SELECT sum(n) FROM t").fetchone() == (3,)
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            reader.execute("BEGIN IMMEDIATE")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_reader_makes_and_changes_no_file(file: Path) -> None:
    with (
        closing(open_sqlite(file, read_only=True)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("DELETE FROM t")
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        open_sqlite(file.with_name("other"), read_only=True)


@pytest.mark.parametrize("any_thread", [True, False])
def test_another_thread_uses_a_connection_if_it_may(file: Path, any_thread: bool) -> None:
    with closing(open_sqlite(file, any_thread=any_thread)) as connection, ThreadPoolExecutor(1) as pool:
        error = pool.submit(connection.execute, "SELECT n FROM t").exception()
    assert isinstance(error, sqlite3.ProgrammingError) is not any_thread


def test_what_is_removed_is_overwritten_where_secrets_are(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "keys", holds_secrets=True)) as connection:
        connection.execute("CREATE TABLE t (n TEXT)")
        connection.execute("INSERT INTO t VALUES ('a secret text')")
        connection.execute("DELETE FROM t")
        assert [connection.execute(f"PRAGMA {name}").fetchone() for name in ("secure_delete", "synchronous")] == [
            (1,),
            (3,),
        ]
    assert b"a secret text" not in (tmp_path / "keys").read_bytes()


def test_the_product_opens_files_of_sqlite_by_this_function_alone() -> None:
    opens = [path for path in MODULES if "sqlite3.connect(" in (ROOT / path).read_text("utf-8")]
    assert [str(path) for path in opens if not is_test(path)] == ["infra/sqlite_file.py"]
