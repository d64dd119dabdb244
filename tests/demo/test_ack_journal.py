from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from tests import ROOT
from twofold.demo.traffic.ack_journal import AckJournal, Row, checksum, files, load, read
from twofold.infra.errors import BadArgument
from twofold.infra.project.settings import Settings

ROWS = [
    Row("flights.departures", 2, 0, "true", "UA1545/2013-01-01T10:15Z", checksum(b"{}")),
    Row("flights.departures", 2, 1, "duplicate", "UA1545/2013-01-01T10:15Z", checksum(b"{}")),
    Row("flights.weather", 0, 7, "corrupt:nan", 'a "key"\nof two lines', 0),
]


def written(path: Path) -> Path:
    with AckJournal(path) as journal:
        for row in ROWS:
            journal.append(row)
    return path


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    assert list(read(written(tmp_path / "a.jsonl"))) == ROWS


def test_the_checksum_is_the_crc_32_of_zip_files() -> None:
    assert checksum(b"123456789") == 0xCBF43926


def test_an_arrow_table_holds_the_rows_of_all_files(tmp_path: Path) -> None:
    journal = load(written(tmp_path / "a.jsonl"), written(tmp_path / "b.jsonl"))
    assert journal.num_rows == 6
    counted = duckdb.sql('SELECT kind, count(*), max("offset") FROM journal GROUP BY ALL ORDER BY ALL').fetchall()
    assert counted == [("corrupt:nan", 2, 7), ("duplicate", 2, 1), ("true", 2, 0)]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read(path)) == ROWS[:2]
    assert load(path).num_rows == 2


def test_an_empty_journal_has_no_rows_and_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert load(tmp_path / "a.jsonl").schema == load(written(tmp_path / "b.jsonl")).schema
    assert list(read(tmp_path / "a.jsonl")) == []


def test_no_journal_at_all_is_refused_as_evidence() -> None:
    with pytest.raises(BadArgument, match="No journal"):
        load()


def test_every_run_has_its_own_file_and_none_is_written_over(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    now = datetime(2013, 1, 1, tzinfo=UTC)
    first = AckJournal.begin(settings, "flights", now)
    with pytest.raises(FileExistsError):
        AckJournal.begin(settings, "flights", now)
    second = AckJournal.begin(settings, "flights", now.replace(second=1))
    assert files(settings, "flights") == (first.path, second.path)


def test_rows_survive_a_kill_of_the_process_that_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    script = (
        "import os, pathlib, sys; from twofold.demo.traffic.ack_journal import AckJournal, Row\n"
        "journal = AckJournal(pathlib.Path(sys.argv[1])); journal.append(Row('t', 0, 5, 'true', 'k', 1))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, path], cwd=ROOT, check=False).returncode == -9
    assert list(read(path)) == [Row("t", 0, 5, "true", "k", 1)]
