"""Rows made of changes are the same in whatever order, and however often, the changes are read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from twofold.features.capture.captured_rows import history, latest_rows, latest_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SCHEMA = (
    "id long, name string, photo string, cdc_op string, cdc_snapshot long, cdc_commit_lsn long, cdc_lsn long, "
    "cdc_at timestamp, cdc_transaction long, cdc_unchanged array<string>, cdc_missing string"
)


def at(minute: int) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def change(
    id_: int,
    op: str,
    commit: int,
    lsn: int,
    minute: int,
    name: str | None = None,
    photo: str | None = None,
    snapshot: int = 1,
    transaction: int | None = None,
) -> tuple[Any, ...]:
    """A change; `~` is a photo that did not travel, `!` one of a table without that column.

    Its transaction is numbered as the commit before it, unless another number is given.
    """
    unchanged = ["photo"] if photo == "~" else []
    missing = "other, photo" if photo == "!" else None
    known = None if unchanged or missing else photo
    return id_, name, known, op, snapshot, commit, lsn, at(minute), transaction or commit, unchanged, missing


CHANGES = [
    change(1, "snapshot", 100, 0, 0, "a", "large"),
    # Streamed first, of a transaction that began before the snapshot: its place is before the snapshot's.
    change(1, "update", 90, 80, 1, "b", "~"),
    # One transaction, of which only the last state was ever seen.
    change(1, "update", 110, 105, 2, "c", "~"),
    change(1, "update", 110, 106, 2, "d", "~"),
    # Committed later, though the change itself is further to the front of the log, and by a clock that went back.
    change(1, "update", 120, 101, 1, "e", None),
    change(2, "insert", 110, 107, 2, "x", "old"),
    change(2, "delete", 130, 131, 4),
    change(2, "insert", 140, 141, 5, "y", "new"),
    change(2, "update", 150, 151, 6, "z", "~"),
    change(2, "update", 152, 153, 7, "zz", "!"),
    change(3, "snapshot", 100, 0, 0, "gone", "p"),
    change(3, "delete", 160, 161, 7),
    # Of an incremental snapshot: a row as it is, without a place in the log, by another clock.
    change(1, "snapshot", 0, 0, 99, "e", None, snapshot=0),
    change(2, "snapshot", 0, 0, 99, "zz", "new", snapshot=0),
]

# The table was captured again, after changes were lost: another insert of 4, and deletions of 2 and 5.
AGAIN = [
    *CHANGES,
    change(4, "insert", 165, 166, 8, "f", "p4"),
    change(5, "insert", 167, 168, 8, "h", "p5"),
    change(1, "snapshot", 300, 0, 20, "e", None, snapshot=2),
    change(4, "snapshot", 300, 0, 20, "g", "p4", snapshot=2),
    change(2, "delete", 300, 0, 20, snapshot=2),
    change(3, "delete", 300, 0, 20, snapshot=2),
    change(5, "delete", 300, 0, 20, snapshot=2),
    # Streamed after it, of a database that was restored: its log begins at a lower place.
    change(4, "update", 50, 51, 21, "i", "~", snapshot=2),
    change(5, "insert", 60, 61, 22, "j", "p6", snapshot=2),
]


def in_utc(time: datetime | None) -> datetime | None:
    return time and time.astimezone(UTC)


@pytest.fixture(params=["in order", "backwards", "shuffled, each twice"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ordered(spark: SparkSession, changes: list[tuple[Any, ...]], order: str) -> DataFrame:
    rows = list(changes)
    if order == "backwards":
        rows.reverse()
    elif order != "in order":
        rows += rows
        random.Random(17).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


@pytest.fixture
def changes(spark: SparkSession, order: str) -> DataFrame:
    return ordered(spark, CHANGES, order)


def test_rows_follow_a_table_that_was_captured_again(spark: SparkSession, order: str) -> None:
    changes = ordered(spark, AGAIN, order)
    rows = latest_rows(changes, key=["id"], columns=["name", "photo"]).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "e", None), (4, "i", "p4"), (5, "j", "p6")]


def test_history_goes_on_after_a_table_was_captured_again(spark: SparkSession, order: str) -> None:
    """What the new snapshot shows unchanged goes on; what was lost begins or ends with it."""
    distinct = ordered(spark, AGAIN, order).dropDuplicates(
        ["id", "cdc_snapshot", "cdc_commit_lsn", "cdc_lsn", "cdc_op"]
    )
    rows = history(distinct, key=["id"], columns=["name", "photo"]).where("valid_to IS NULL OR id > 3").collect()
    found = sorted(
        (r.id, r.valid_from.astimezone(UTC), r.valid_to and r.valid_to.astimezone(UTC), r.name) for r in rows
    )
    assert found == [
        (1, at(2), None, "e"),
        (4, at(8), at(20), "f"),
        (4, at(20), at(21), "g"),
        (4, at(21), None, "i"),
        (5, at(8), at(20), "h"),
        (5, at(22), None, "j"),
    ]


def test_latest_rows_are_those_that_were_not_deleted_last(changes: DataFrame) -> None:
    rows = latest_rows(changes, key=["id"], columns=["name", "photo"]).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "e", None), (2, "zz", "new")]


def test_a_null_that_travelled_is_no_value_that_did_not(spark: SparkSession) -> None:
    rows = [change(1, "insert", 1, 1, 0, "a", "p"), change(1, "update", 2, 2, 1, "b", None)]
    rows.append(change(1, "update", 3, 3, 2, "c", "~"))
    found = latest_rows(spark.createDataFrame(rows, SCHEMA), key=["id"], columns=["name", "photo"]).collect()
    assert [tuple(row) for row in found] == [(1, "c", None)]


def test_history_has_each_committed_row_for_half_open_times(changes: DataFrame) -> None:
    # The streams leave out repeated records, for tables of several rows.
    distinct = changes.dropDuplicates(["id", "cdc_commit_lsn", "cdc_lsn", "cdc_op"])
    rows = history(distinct, key=["id"], columns=["name", "photo"]).collect()
    spans = ((r.id, r.valid_from.astimezone(UTC), r.valid_to and r.valid_to.astimezone(UTC), r.name) for r in rows)
    found = sorted(spans, key=lambda span: (*span[:2], span[2] or at(99)))
    assert found == [
        (1, at(0), at(1), "a"),
        (1, at(1), at(2), "b"),
        (1, at(2), at(2), "d"),
        (1, at(2), None, "e"),
        (2, at(2), at(4), "x"),
        (2, at(5), at(6), "y"),
        (2, at(6), at(7), "z"),
        (2, at(7), None, "zz"),
        (3, at(0), at(7), "gone"),
    ]
    assert {r.name: r.photo for r in rows} == {
        "a": "large",
        "b": "large",
        "d": "large",
        "e": None,
        "x": "old",
        "y": "new",
        "z": "new",
        "zz": "new",
        "gone": "p",
    }
    assert {r.name for r in rows if r.is_current} == {"e", "zz"}
    marks = {
        105: "b gone",
        115: "d gone x",
        125: "e gone x",
        135: "e gone",
        145: "e gone y",
        155: "e gone zz",
        165: "e zz",
    }
    assert {lsn: " ".join(names_at(rows, lsn)) for lsn in marks} == marks


def names_at(rows: list[Row], lsn: int) -> list[str]:
    """The names of the rows that the database had at a mark."""
    return sorted(r.name for r in rows if r.valid_from_lsn < lsn and (r.valid_to_lsn is None or r.valid_to_lsn >= lsn))


def test_at_a_mark_after_a_restore_each_key_has_one_row(spark: SparkSession, order: str) -> None:
    """The log of a restored database begins at a lower place, where a new snapshot shows what is there."""
    restored = [
        change(1, "snapshot", 100, 0, 0, "a", "p"),
        change(2, "snapshot", 100, 0, 0, "b", "p"),
        change(1, "update", 900, 901, 1, "lost", "p"),
        change(2, "update", 910, 911, 1, "same", "p"),
        change(1, "snapshot", 500, 0, 2, "a", "p", snapshot=2),
        change(2, "snapshot", 500, 0, 2, "same", "p", snapshot=2),
        change(2, "update", 600, 601, 3, "new", "p", snapshot=2),
    ]
    changes = ordered(spark, restored, order).dropDuplicates(["id", "cdc_commit_lsn", "cdc_lsn"])
    rows = history(changes, key=["id"], columns=["name"]).collect()
    assert {lsn: names_at(rows, lsn) for lsn in (550, 650)} == {550: ["a", "same"], 650: ["a", "new"]}


def test_a_first_transaction_after_a_snapshot_is_one(spark: SparkSession, order: str) -> None:
    """It has no commit before it: the place of each of its changes stands there. Its number comes again much later."""
    rows = [
        change(1, "snapshot", 100, 0, 0, "a"),
        change(1, "update", 105, 105, 1, "never seen", transaction=7),
        change(1, "update", 106, 106, 1, "b", transaction=7),
        change(1, "update", 190, 191, 9, "c", transaction=7),
    ]
    changes = ordered(spark, rows, order).dropDuplicates(["id", "cdc_commit_lsn", "cdc_lsn"])
    found = history(changes, key=["id"], columns=["name"]).orderBy("valid_from").collect()
    assert [row.name for row in found] == ["a", "b", "c"]


def test_a_row_that_is_accepted_late_outlives_its_deletion(spark: SparkSession, order: str) -> None:
    """It was refused, so that the recapture deleted it; both have the place of the snapshot."""
    rows = [
        change(1, "snapshot", 100, 0, 0, "a", "p"),
        change(1, "delete", 300, 0, 20, snapshot=2),
        change(1, "snapshot", 300, 0, 20, "b", "p", snapshot=2),
    ]
    changes = ordered(spark, rows, order).dropDuplicates(["id", "cdc_commit_lsn", "cdc_lsn", "cdc_op"])
    assert [r.name for r in latest_rows(changes, key=["id"], columns=["name"]).collect()] == ["b"]
    assert [r.name for r in history(changes, key=["id"], columns=["name"]).where("is_current").collect()] == ["b"]


PRICES = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None), ("d", 5), ("d", None), ("d", 7), ("a", None), ("c", 9)]


@pytest.mark.parametrize("since", [0, 7], ids=["the whole history", "what compaction has left"])
def test_compaction_changes_no_latest_value(spark: SparkSession, since: int) -> None:
    records = [(item, price, offset, price is None) for offset, (item, price) in enumerate(PRICES)]
    given = spark.createDataFrame(records[since:], "item string, price int, log_offset long, is_tombstone boolean")
    found = latest_values(given, key=["item"], columns=["price"]).collect()
    assert sorted(map(tuple, found)) == [("c", 9), ("d", 7)]
