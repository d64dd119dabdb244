"""A copy of a table by its log: the same rows and history, and nothing shared from then on."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from twofold.infra.delta.change_feed import changed_rows
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import Lake
from twofold.infra.delta.table_copy import copy_table
from twofold.infra.errors import BadArgument

NAME = "plant.hours"
SCHEMA = pa.schema([("sensor", pa.string()), ("total", pa.int64())])


def rows(total: int, *sensors: str) -> pa.Table:
    return pa.table({"sensor": list(sensors), "total": [total] * len(sensors)}, schema=SCHEMA)


def stored(lake: Lake, version: int | None = None) -> dict[str, int]:
    return {row["sensor"]: row["total"] for row in pa.table(lake.open(NAME, version).scan()).to_pylist()}


@pytest.fixture
def other(lake: Lake, tmp_path: Path) -> Lake:
    return Lake(replace(lake.settings, home=tmp_path / "copy"))


@pytest.fixture
def writer(lake: Lake) -> Writer:
    lake.ensure(NAME, SCHEMA, statistics=["sensor"])
    writer = Writer(lake, NAME)
    for number in range(1, 6):
        writer.upsert(rows(number, "a", f"s{number}"), ["sensor"], CommitTag(app="stream", version=number))
        if number == 3:
            lake.open(NAME).create_checkpoint()
    return writer


def no_link(source: Path, copy: Path) -> None:
    raise OSError(errno.EXDEV if source.exists() else errno.ENOENT, "no link")


@pytest.mark.parametrize("since", [0, 3, 4, 5])
@pytest.mark.parametrize("disks", [1, 2])
def test_a_copy_has_the_rows_and_what_changed_since(
    lake: Lake, other: Lake, writer: Writer, since: int, disks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disks == 2:
        monkeypatch.setattr(os, "link", no_link)
    assert copy_table(lake, other, NAME, since) == other.version(NAME) == 5
    assert stored(other) == stored(lake) == {"a": 5, "s1": 1, "s2": 2, "s3": 3, "s4": 4, "s5": 5}
    columns = ["sensor", "total"]
    changes = [sorted(changed_rows(each, NAME, since, 5, columns).to_pylist(), key=str) for each in (lake, other)]
    assert changes[0] == changes[1]
    assert stored(other, max(since, 3)) == stored(lake, max(since, 3))


def test_neither_sees_what_the_other_commits_or_vacuums(lake: Lake, other: Lake, writer: Writer) -> None:
    copy_table(lake, other, NAME, 5)
    Writer(other, NAME).upsert(rows(70, "a"), ["sensor"], CommitTag(app="stream", version=6))
    assert stored(lake)["a"] == 5
    writer.upsert(rows(80, "s1"), ["sensor"], CommitTag(app="stream", version=6))
    lake.open(NAME).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert stored(other) == {"a": 70, "s1": 1, "s2": 2, "s3": 3, "s4": 4, "s5": 5}
    assert stored(lake) == {"a": 5, "s1": 80, "s2": 2, "s3": 3, "s4": 4, "s5": 5}


def test_a_table_that_was_never_written_is_refused(lake: Lake, other: Lake) -> None:
    with pytest.raises(BadArgument, match="does not exist yet"):
        copy_table(lake, other, NAME, 0)
