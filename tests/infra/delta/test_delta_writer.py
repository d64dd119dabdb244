"""A writer commits each thing once and leaves the rows that it should; `test_both_engines.py` has Spark do the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.infra.delta.counts import NAME, SCHEMA, Row, difference, rows, stamp, stored
from twofold.infra.delta.delta_writer import Writer, Written
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import QualityFailed, SchemaMismatch
from twofold.infra.project.settings import Settings


@pytest.fixture
def writer(settings: Settings) -> Writer:
    lake = Lake(replace(settings, engine="delta-rs"))
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    return Writer(lake, NAME)


def test_an_append_is_made_once(writer: Writer) -> None:
    first = writer.append(rows(("a", 1, None), ("b", 2, 0.5)), stamp(4, cause="test"))
    assert (first.inserted, first.changed, first.version, first.skipped) == (2, 2, 1, False)
    assert first.files >= 1
    for version in (4, 3, 0):
        assert writer.append(rows(("c", 3, None)), stamp(version)) == Written(skipped=True)
    assert (writer.lake.version(NAME), stored(writer.lake)) == (1, [("a", 1, None), ("b", 2, 0.5)])
    (commit,) = writer.lake.commits(NAME, 0, 1)
    assert (commit.info, commit.rewrites, writer.done(stamp(4)), writer.done(stamp(5))) == (
        {"cause": "test"},
        False,
        True,
        False,
    )


def test_a_log_gets_a_checkpoint_every_twenty_commits(lake: Lake) -> None:
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    writer, last = Writer(lake, NAME), Path(lake.uri(NAME)) / "_delta_log" / "_last_checkpoint"
    for version in range(1, 20):
        writer.append(rows(("a", version, None)), stamp(version))
    assert not last.exists()
    writer.append(rows(("a", 20, None)), stamp(20))
    assert json.loads(last.read_text())["version"] == 20
    assert sorted(n for _, n, _ in stored(lake)) == list(range(1, 21))


def test_each_stream_of_commits_has_its_own_numbers(writer: Writer) -> None:
    assert writer.append(rows(("a", 1, None)), stamp(0, "one")).inserted == 1
    assert writer.append(rows(("b", 1, None)), stamp(0, "two")).inserted == 1
    assert writer.append(rows(("c", 1, None)), stamp(0, "one")).skipped


def test_columns_go_by_name(writer: Writer) -> None:
    writer.append(rows(("a", 1, 2.5)).select(["x", "k", "n"]), stamp(1))
    writer.upsert(rows(("b", 3, 4.5)).select(["n", "x", "k"]), ["k"], stamp(2))
    assert stored(writer.lake) == [("a", 1, 2.5), ("b", 3, 4.5)]


def test_an_append_of_nothing_still_says_that_it_was_made(writer: Writer) -> None:
    assert writer.append(rows(), stamp(1)).inserted == 0
    assert (writer.done(stamp(1)), stored(writer.lake)) == (True, [])


def test_an_upsert_inserts_new_keys_and_replaces_others(writer: Writer) -> None:
    writer.append(rows(("a", 1, 1.0), ("b", 2, 2.0), (None, 3, 3.0)), stamp(1))
    written = writer.upsert(rows(("a", 1, 1.0), ("b", 9, None), ("c", 4, 4.0), (None, 5, 3.0)), ["k"], stamp(2))
    assert (written.inserted, written.updated, written.deleted) == (1, 2, 0)
    assert stored(writer.lake) == [("a", 1, 1.0), ("b", 9, None), ("c", 4, 4.0), (None, 5, 3.0)]


def test_rows_that_are_there_already_write_nothing(writer: Writer) -> None:
    first = [("a", 1, None), ("b", None, float("nan")), ("c", 2, 0.0)]
    writer.append(rows(*first), stamp(1))
    version = writer.lake.version(NAME)
    again = [("a", 1, None), ("b", None, float("nan")), ("c", 2, -0.0)]
    assert writer.upsert(rows(*again), ["k"], stamp(2)) == Written()
    assert writer.upsert(rows(("a", 7, 7.0)), ["k"], stamp(3), keep=True) == Written()
    assert writer.lake.version(NAME) == version


def test_an_upsert_is_made_once(writer: Writer) -> None:
    writer.upsert(rows(("a", 1, None)), ["k"], stamp(1))
    writer.upsert(rows(("a", 2, None)), ["k"], stamp(1, "correction"))
    assert writer.upsert(rows(("a", 1, None)), ["k"], stamp(1)) == Written(skipped=True)
    assert stored(writer.lake) == [("a", 2, None)]


def test_the_first_row_of_a_key_stays_when_asked_to(writer: Writer) -> None:
    writer.upsert(rows(("a", 1, None)), ["k"], stamp(1), keep=True)
    written = writer.upsert(rows(("a", 2, None), ("b", 1, None)), ["k"], stamp(2), keep=True)
    assert (written.inserted, written.updated) == (1, 0)
    assert stored(writer.lake) == [("a", 1, None), ("b", 1, None)]


def test_the_greatest_row_stays_in_whatever_order_they_come(writer: Writer) -> None:
    arrivals: list[Row] = [(None, 9.0), (1, None), (2, None), (2, 0.5)]
    orders = [(str(order), order) for order in itertools.permutations(arrivals)]
    for turn in range(len(arrivals)):
        arrived = rows(*((key, *order[turn]) for key, order in orders))
        writer.upsert(arrived, ["k"], stamp(turn), greatest=["n", "x"])
    assert stored(writer.lake) == sorted(((key, 2, 0.5) for key, _ in orders), key=repr)


def test_an_equal_row_does_not_replace(writer: Writer) -> None:
    writer.upsert(rows(("a", 2, 1.0), ("b", None, 1.0)), ["k"], stamp(1), greatest=["n"])
    assert writer.upsert(rows(("a", 2, 7.0), ("b", None, 7.0)), ["k"], stamp(2), greatest=["n"]) == Written()
    assert stored(writer.lake) == [("a", 2, 1.0), ("b", None, 1.0)]


def test_a_difference_is_published_exactly(writer: Writer) -> None:
    writer.append(rows(("a", 1, None), ("b", 2, float("nan")), ("c", 3, 0.5)), stamp(1))
    changes = difference(
        ("update", ("a", 7, 0.1), ("a", 1, None)),
        ("delete", ("b", 2, float("nan")), ("b", 2, float("nan"))),
        ("insert", ("d", 4, None), None),
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"))
    assert (written.inserted, written.updated, written.deleted, written.version) == (1, 1, 1, 2)
    assert stored(writer.lake) == [("a", 7, 0.1), ("c", 3, 0.5), ("d", 4, None)]
    assert writer.apply(changes, ["k"], stamp(1, "refresh")) == Written(skipped=True)


def test_a_row_that_changed_since_the_difference_was_taken_is_left_alone(writer: Writer) -> None:
    writer.append(rows(("a", 2, None), ("b", 2, None), ("c", 2, None), ("e", 1, 1.0)), stamp(1))
    changes = difference(
        ("update", ("a", 9, None), ("a", 1, None)),
        ("delete", ("b", 1, None), ("b", 1, None)),
        ("insert", ("c", 9, None), None),
        ("update", ("d", 9, None), ("d", 1, None)),
        ("delete", ("f", 1, None), ("f", 1, None)),
        ("update", ("e", 9, 1.0), ("e", 1, 1.0)),
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"))
    assert (written.inserted, written.updated, written.deleted) == (0, 1, 0)
    assert stored(writer.lake) == [("a", 2, None), ("b", 2, None), ("c", 2, None), ("e", 9, 1.0)]


def test_an_insert_replaces_a_lesser_row_of_its_key_if_asked(writer: Writer) -> None:
    writer.append(rows(("a", 2, 0.5), ("b", 2, 0.5), ("c", 2, None)), stamp(1))
    changes = difference(
        ("insert", ("a", 3, None), None), ("insert", ("b", 1, 9.0), None), ("insert", ("c", 2, 0.0), None)
    )
    written = writer.apply(changes, ["k"], stamp(1, "refresh"), greatest=["n", "x"])
    assert (written.inserted, written.updated, written.deleted) == (0, 2, 0)
    assert stored(writer.lake) == [("a", 3, None), ("b", 2, 0.5), ("c", 2, 0.0)]
    lesser = difference(("insert", ("b", 1, 9.0), None))
    assert writer.apply(lesser, ["k"], stamp(2, "refresh"), greatest=["n", "x"]).is_nothing


def test_rows_that_do_not_fit_name_their_columns(writer: Writer) -> None:
    wrong = rows(("a", 1, None)).rename_columns(["k", "count", "x"])
    attempts: list[Callable[[], object]] = [
        lambda: writer.append(wrong, stamp(1)),
        lambda: writer.upsert(wrong, ["k"], stamp(1)),
        lambda: writer.apply(wrong, ["k"], stamp(1)),
    ]
    for attempt in attempts:
        with pytest.raises(
            SchemaMismatch, match=r"plant\.counts: missing columns: .*\bn\b.*; unexpected columns: count"
        ):
            attempt()
    assert stored(writer.lake) == []


def test_two_rows_of_one_key_are_refused(writer: Writer) -> None:
    with pytest.raises(QualityFailed, match=r"have the key \{'k': 'b'\}"):
        writer.upsert(rows(("a", 1, None), ("b", 1, None), ("b", 2, None)), ["k"], stamp(1))
    assert stored(writer.lake) == []
    assert writer.upsert(rows(("a", 1, None), ("b", 2, None)), ["k"], stamp(1)).inserted == 2


def test_spark_rows_without_a_session_are_refused(settings: Settings) -> None:
    lake = Lake(replace(settings, engine="spark"))
    lake.ensure(NAME, SCHEMA, statistics=["k"])
    with pytest.raises(RuntimeError, match="without a session"):
        Writer(lake, NAME).append(rows(("a", 1, None)), stamp(1))
