"""The life of a row: what the stream said last, and what batch work made of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twofold.batch.ledgers.row_history import Closing, Record, RowHistory, RowVersion
from twofold.infra.text.printable import plain
from twofold.status.window_life import Life, Marks, Value, history_from, lives_of, marks_of

NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def version(minutes: int, by: str, change: str = "update", **facts: Any) -> RowVersion:
    return RowVersion(version=minutes, at=at(minutes), change=change, by=by, **facts)


HISTORY = RowHistory(
    table="plant.hours",
    key={"sensor": "a"},
    now={"sensor": "a", "n": 24.9, "m": 1, "who": "y"},
    since=0,
    definition="x",
    closes_at=at(0),
    closed=Closing(at=at(30), version=31, watermark=at(2)),
    versions=[
        version(0, "stream", "insert", after={"sensor": "a", "n": 6.0, "m": 1, "who": "x"}, watermark=at(-90)),
        version(10, "stream", before={"n": 6.0}, after={"n": 21.4}),
        version(11, "late", "none", records=[Record(source="plant.readings", partition=1, offset=7)]),
        version(20, "stream", before={"who": "x"}, after={"who": "y"}),
        version(80, "late", before={"n": 21.4}, after={"n": 23.1}, watermark=at(5)),
        version(90, "upstream", before={"n": 23.1}, after={"n": 24.9}),
    ],
)


def test_the_stream_alone_would_say_its_last_value_for_ever() -> None:
    changed, same = lives_of(HISTORY)
    assert changed == Life(
        "n",
        [Value(at(0), 1, 6.0), Value(at(10), 2, 21.4)],
        [Value(at(80), 5, 23.1), Value(at(90), 6, 24.9)],
    )
    assert (changed.alone, changed.final) == (21.4, 24.9)
    assert (same.column, same.alone, same.final) == ("m", 1, 1), "texts and the key have no life"


def test_a_removed_row_has_no_value_and_may_come_back() -> None:
    gone = [
        *HISTORY.versions[:2],
        version(30, "late", "delete", before={"sensor": "a", "n": 21.4, "m": 1}),
        version(40, "late", "insert", after={"sensor": "a", "n": 5.0, "m": 2}),
    ]
    [n, _] = lives_of(RowHistory(**{**vars(HISTORY), "versions": gone}))
    assert [one.value for one in n.corrected] == [None, 5.0]


def test_a_row_without_numbers_or_versions_has_no_life() -> None:
    assert lives_of(RowHistory(**{**vars(HISTORY), "versions": []})) == []


def test_a_history_is_read_from_what_the_command_prints() -> None:
    history = history_from(plain(HISTORY))
    assert plain(history) == plain(HISTORY)
    assert lives_of(history) == lives_of(HISTORY)


def test_the_watermark_goes_on_until_the_row_is_closed() -> None:
    assert marks_of(HISTORY) == Marks([(at(0), at(-90)), (at(30), at(2))], at(0), at(30))
    open_row = RowHistory(**{**vars(HISTORY), "closed": None})
    assert marks_of(open_row) == Marks([(at(0), at(-90))], at(0), None)
    assert marks_of(
        history_from({"table": "t", "key": {}, "now": None, "versions": [], "since": 0, "definition": ""})
    ) == (Marks([], None, None))
